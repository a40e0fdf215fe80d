package edge

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/signed"
)

// HandleVouched serves what the aggregator says of its keys, below deployments/{id}/:
//
//	GET  hpke_config   to anybody: the list at hpke_config, signed
//	POST hpke_config   to who makes manifests, with {uint64 not_before, not_after}: the list, signed for that time
//	POST manifest      to the same, with a manifest: {uint8 role; opaque signature[208]}, the aggregator's own
func (s *Server) HandleVouched() {
	const path = "/deployments/{deployment}/"
	s.handle("GET", path+"hpke_config", "GET signed hpke_config", func(w http.ResponseWriter, r *http.Request) (*dap.TaskID, error) {
		id, err := s.deployment(r)
		if err != nil {
			return nil, err
		}
		list, maxAge, err := s.Notary.List(id)
		if err != nil {
			return nil, vouchError(err)
		}
		w.Header().Set("Cache-Control", "max-age="+strconv.Itoa(int(maxAge/time.Second)))
		w.Header().Set("Content-Type", signed.ListMedia)
		w.Write(list)
		return nil, nil
	})
	made := func(name string, limit int64, f func(ctx context.Context, id [32]byte, body []byte) (media string, answer []byte, err error)) {
		s.handle("POST", path+name, "POST "+name, func(w http.ResponseWriter, r *http.Request) (*dap.TaskID, error) {
			id, err := s.deployment(r)
			if err != nil {
				return nil, err
			}
			if !task.NewToken(s.Notary.Token()).Bears(r) {
				return nil, Unauthorized()
			}
			body, release, err := s.read(w, r, limit)
			defer release()
			if err != nil {
				return nil, err
			}
			media, answer, err := f(r.Context(), id, body)
			if err != nil {
				return nil, vouchError(err)
			}
			w.Header().Set("Content-Type", media)
			w.Header().Set("Cache-Control", "no-store")
			w.Write(answer)
			return nil, nil
		})
	}
	made("hpke_config", 16, func(ctx context.Context, id [32]byte, body []byte) (string, []byte, error) {
		if len(body) != 16 {
			return "", nil, keyset.ErrRefused
		}
		from, until := binary.BigEndian.Uint64(body), binary.BigEndian.Uint64(body[8:])
		if from >= 1<<40 || until >= 1<<40 {
			return "", nil, keyset.ErrRefused
		}
		list, err := s.Notary.ListFor(ctx, id, time.Unix(int64(from), 0).UTC(), time.Unix(int64(until), 0).UTC())
		return signed.ListMedia, list, err
	})
	made("manifest", ohttp.MaxManifest, func(ctx context.Context, id [32]byte, body []byte) (string, []byte, error) {
		m, err := ohttp.ReadManifest(body)
		if err == nil && m.Deployment != id {
			err = keyset.ErrDeployment
		}
		if err != nil {
			return "", nil, err
		}
		c, err := s.Notary.Cosign(ctx, m)
		return ohttp.CosignatureMedia, c.Append(nil), err
	})
}

// deployment is the id in the path.
func (s *Server) deployment(r *http.Request) (id [32]byte, err error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(r.PathValue("deployment"))
	if s.Notary == nil || err != nil || len(b) != len(id) {
		return id, plain(http.StatusNotFound, "no such deployment here")
	}
	return [32]byte(b), nil
}

// vouchError tells who makes manifests why nothing was signed; the causes hold no secret.
func vouchError(err error) error {
	switch {
	case errors.Is(err, keyset.ErrDeployment):
		return plain(http.StatusNotFound, "no such deployment here")
	case errors.Is(err, signed.ErrSigned):
		return plain(http.StatusConflict, err.Error())
	case errors.Is(err, keyset.ErrRefused), errors.Is(err, keyset.ErrPromise), errors.Is(err, ohttp.ErrManifest), errors.Is(err, signed.ErrList),
		errors.Is(err, signed.ErrSignature), errors.Is(err, signed.ErrWindow), errors.Is(err, signed.ErrKey):
		return plain(http.StatusForbidden, err.Error())
	}
	return err
}
