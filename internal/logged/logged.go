package logged

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// Errors of an entry, to branch on with errors.Is.
var (
	// ErrAuthor: not signed by those who may say it.
	ErrAuthor = errors.New("logged: not signed by an owner who may say it")
	// ErrContent: the body is not what the kind has.
	ErrContent = errors.New("logged: the entry does not hold what its kind has")
	// ErrKind: the kind is not known.
	ErrKind = errors.New("logged: unknown kind of entry")
	// ErrLater is beside ErrContent where the body is of a later version of what the kind has.
	ErrLater = errors.New("logged: of a later version")
)

// A Judge knows the owners who may have something logged. Safe for concurrent use.
type Judge struct{ Anchors *signed.Anchors }

// entryDomain opens what an entry is about.
const entryDomain = "starling log entry v1"

// about is what an entry of a kind is about.
func about(kind tlog.Kind, parts ...[]byte) [32]byte {
	h := sha256.New()
	h.Write(append([]byte(entryDomain), byte(kind)))
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(p))))
		h.Write(p)
	}
	return [32]byte(h.Sum(nil))
}

// Claim says what follows from an entry, and refuses it with [ErrAuthor], [ErrContent] or
// [ErrKind]. It looks at no clock: a signature holds for the time that it names. An active
// set is the log's own, and is none of these.
func (j Judge) Claim(e tlog.Entry) (tlog.Claim, error) {
	switch e.Kind {
	case tlog.KindManifest:
		_, c, err := j.manifest(e)
		return c, err
	case tlog.KindKeyList:
		return j.keyList(e)
	case tlog.KindShuffleKeys:
		_, c, err := j.shuffleKeys(e)
		return c, err
	case tlog.KindBatch:
		return j.batch(e)
	case tlog.KindFrontManifest:
		_, c, err := j.frontManifest(e)
		return c, err
	case tlog.KindRecipe, tlog.KindWithdrawal, tlog.KindRelease, tlog.KindCohort, tlog.KindCensus:
		return j.statement(e)
	}
	return tlog.Claim{}, fmt.Errorf("%w: %v", ErrKind, e.Kind)
}

// owner is the anchor of a root key.
func (j Judge) owner(root signed.PublicKey, what string) (signed.Anchor, error) {
	a, ok := j.Anchors.Find(root)
	if !ok {
		return a, fmt.Errorf("%w: the %s's root key %s is not among the anchors", ErrAuthor, what, root)
	}
	return a, nil
}

// manifest reads a manifest that the three of its deployment have signed.
func (j Judge) manifest(e tlog.Entry) (*ohttp.Manifest, tlog.Claim, error) {
	bad := func(of, err error) (*ohttp.Manifest, tlog.Claim, error) {
		return nil, tlog.Claim{}, fmt.Errorf("%w: %w", of, err)
	}
	m, err := readManifest(e)
	if err != nil {
		return nil, tlog.Claim{}, err
	}
	roots := ohttp.Roots{}
	owners := make(map[signed.Role]signed.Anchor)
	for _, s := range m.Signatures {
		root := s.Signature.Delegation.Root
		if owners[s.Role], err = j.owner(root, s.Role.String()); err != nil {
			return nil, tlog.Claim{}, err
		}
		switch s.Role {
		case signed.Leader:
			roots.Leader = root
		case signed.Helper:
			roots.Helper = root
		case signed.Gateway:
			roots.Gateway = root
		}
	}
	if owners[signed.Leader].SameOwner(owners[signed.Helper]) {
		return bad(ErrAuthor, errors.New("leader and helper have one owner"))
	}
	if err := m.Verify(roots); err != nil {
		return bad(ErrAuthor, err)
	}
	if err := ofDeployment(m, roots); err != nil {
		return bad(ErrAuthor, err)
	}
	c := tlog.Claim{From: m.NotBefore, Until: m.NotAfter, Owners: []signed.PublicKey{roots.Leader, roots.Helper, roots.Gateway},
		About: about(e.Kind, m.Deployment[:], binary.BigEndian.AppendUint32(nil, m.Epoch), binary.BigEndian.AppendUint16(nil, m.Revision))}
	return m, c, nil
}

func readManifest(e tlog.Entry) (*ohttp.Manifest, error) {
	m, err := ohttp.ReadManifest(e.Body)
	if errors.Is(err, ohttp.ErrLater) {
		err = fmt.Errorf("%w: %w", ErrLater, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrContent, err)
	}
	return m, nil
}

// ofDeployment says whether the keys that have signed a manifest are those of the
// deployment that it names: its id is a hash over them, the servers' addresses and the
// length of an epoch, all of which the manifest has.
func ofDeployment(m *ohttp.Manifest, roots ohttp.Roots) error {
	urls := make(map[signed.Role]string)
	for _, p := range m.Pinned {
		if p.Media != signed.ListMedia {
			continue
		}
		l, _, err := signed.ReadList(p.Body)
		if err != nil {
			return err
		}
		urls[l.Role] = l.URL
	}
	r := &recipe.Recipe{Path: recipe.TwoServer{Leader: urls[signed.Leader], Helper: urls[signed.Helper]}, Relay: &recipe.Relay{URL: m.Relay},
		ServerKeys: &recipe.ServerKeys{Leader: roots.Leader, Helper: roots.Helper, Gateway: roots.Gateway, EpochLength: uint32(m.Length / time.Second)}}
	id, err := r.Deployment()
	if err != nil {
		return err
	}
	if id != m.Deployment {
		return errors.New("the three who have signed are not those of the deployment that it names")
	}
	for role, root := range map[signed.Role]signed.PublicKey{signed.Leader: roots.Leader, signed.Helper: roots.Helper} {
		if _, err := m.KeyList(role, urls[role], root); err != nil {
			return err
		}
	}
	return nil
}

// keyList reads a key list that leader or helper has signed.
func (j Judge) keyList(e tlog.Entry) (tlog.Claim, error) {
	l, s, err := signed.ReadList(e.Body)
	if err != nil {
		return tlog.Claim{}, fmt.Errorf("%w: %w", ErrContent, err)
	}
	root := s.Delegation.Root
	a, err := j.owner(root, l.Role.String())
	if err != nil {
		return tlog.Claim{}, err
	}
	if _, err := signed.OpenList(e.Body, root, l.Deployment, l.Role, l.URL); err != nil {
		return tlog.Claim{}, fmt.Errorf("%w: %w", ErrAuthor, err)
	}
	if u, err := url.Parse(l.URL); err != nil || !a.Holds(u.Hostname()) {
		return tlog.Claim{}, fmt.Errorf("%w: the key is that of %s, for %s, and %s is not there", ErrAuthor, a.Owner, a.Domain, l.URL)
	}
	return tlog.Claim{From: l.NotBefore, Until: l.NotAfter, Owners: []signed.PublicKey{root},
		About: about(e.Kind, l.Deployment[:], []byte{byte(l.Role)}, binary.BigEndian.AppendUint32(nil, l.Epoch), root[:])}, nil
}

// statement reads what one owner says.
func (j Judge) statement(e tlog.Entry) (tlog.Claim, error) {
	s, err := tlog.ReadStatement(e)
	if err != nil {
		return tlog.Claim{}, fmt.Errorf("%w: %w", ErrContent, err)
	}
	root := s.Signature.Delegation.Root
	if _, err := j.owner(root, "author"); err != nil {
		return tlog.Claim{}, err
	}
	if err := s.Verify(e.Kind, root); err != nil {
		return tlog.Claim{}, fmt.Errorf("%w: %w", ErrAuthor, err)
	}
	c := tlog.Claim{Stated: s.At, Owners: []signed.PublicKey{root}}
	switch e.Kind {
	case tlog.KindRecipe:
		err := j.recipe(s, &c)
		return c, err
	case tlog.KindRelease:
		r, err := tlog.ReadRelease(s.Content)
		if err != nil {
			return c, fmt.Errorf("%w: %w", ErrContent, err)
		}
		c.About = about(e.Kind, root[:], []byte(r.Name))
		return c, nil
	case tlog.KindCohort:
		x, err := tlog.ReadCohort(s.Content)
		if err != nil {
			return c, fmt.Errorf("%w: %w", ErrContent, err)
		}
		// Whether that owner is the one of the deployment the epoch's manifest says.
		c.From, c.Until = s.At, s.At.Add(ohttp.MaxEpoch)
		c.About = about(e.Kind, s.Deployment[:], []byte{byte(x.Role)}, binary.BigEndian.AppendUint32(nil, x.Epoch), root[:])
		return c, nil
	case tlog.KindCensus:
		h, err := censusHash(s)
		if err != nil {
			return c, fmt.Errorf("%w: %w", ErrContent, err)
		}
		// Whose word a device wants is for the recipe that asks by it.
		c.About = about(e.Kind, s.Deployment[:], h[:], root[:])
		return c, nil
	}
	if len(s.Content) != len(c.Withdraws) || tlog.Hash(s.Content) == (tlog.Hash{}) {
		return c, fmt.Errorf("%w: a withdrawal of %d bytes, want the leaf hash of an entry", ErrContent, len(s.Content))
	}
	c.Withdraws, c.By, c.From, c.Until = tlog.Hash(s.Content), root, s.At, s.At
	c.About = about(e.Kind, s.Content)
	return c, nil
}

// censusHash is the hash of the census that a statement has.
func censusHash(s *tlog.Statement) (recipe.Hash, error) {
	x, err := recipe.ReadCensus(s.Content)
	if errors.As(err, new(*recipe.UnknownError)) {
		err = fmt.Errorf("%w: %w", ErrLater, err)
	}
	if err != nil {
		return recipe.Hash{}, err
	}
	return x.Hash()
}

// recipe completes the claim of a recipe, whose author has signed it.
func (j Judge) recipe(s *tlog.Statement, c *tlog.Claim) error {
	r, id, err := readRecipe(s.Content)
	if errors.As(err, new(*recipe.UnknownError)) {
		err = fmt.Errorf("%w: %w", ErrLater, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrContent, err)
	}
	deployment, err := r.Deployment()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrContent, err)
	}
	if deployment != s.Deployment {
		return fmt.Errorf("%w: the recipe is of another deployment than the statement", ErrContent)
	}
	if err := r.CheckAnchors(j.Anchors); err != nil {
		return fmt.Errorf("%w: %w", ErrAuthor, err)
	}
	c.About = about(tlog.KindRecipe, id[:])
	var roots []signed.PublicKey
	for _, p := range r.Parties() {
		roots = append(roots, p.Key)
	}
	for _, root := range append(roots, r.GatewayKey()) {
		if !root.IsZero() && root != c.Owners[0] {
			c.Owners = append(c.Owners, root)
		}
	}
	if w, ok := r.Window.(recipe.Between); ok {
		c.Until = end(uint64(w.End), uint64(r.TimePrecision))
	}
	return nil
}

// maxTime bounds times, in seconds since 1970: what lies behind it has no end.
const maxTime = 1 << 40

// end is the time of a number of units.
func end(units, seconds uint64) time.Time {
	if seconds == 0 || units > maxTime/seconds {
		return time.Time{}
	}
	return time.Unix(int64(units*seconds), 0).UTC()
}

// readRecipe reads a recipe's file, without what proves its guarantee: a device has that
// proved anyway.
func readRecipe(file []byte) (*recipe.Recipe, recipe.ID, error) {
	alone, _, err := recipe.SplitFile(file)
	if err != nil {
		return nil, recipe.ID{}, err
	}
	r, err := recipe.Read(alone)
	if err != nil {
		return nil, recipe.ID{}, err
	}
	if err := r.Validate(); err != nil {
		return nil, recipe.ID{}, err
	}
	id, err := r.ID()
	return r, id, err
}

// Content is what a bundle says, after all signatures were looked at.
type Content struct {
	// Recipes are their files, by id.
	Recipes map[recipe.ID][]byte
	// Manifests are in the order of the log.
	Manifests []*ohttp.Manifest
	// Fronts are those that a gateway has signed alone.
	Fronts   []*ohttp.Manifest
	cohorts  map[cohort]uint64
	censuses map[census]bool
	keys     map[keyOf][]byte
	// Cohorts counts what owners say of how many devices have credentials.
	Cohorts int
	// Censuses counts what owners say of devices with attributes.
	Censuses int
	// KeyLists and Releases count those that hold.
	KeyLists, Releases int
	// Skipped are entries that a later version knows: of another kind, or of another version
	// of a kind.
	Skipped int
}

// Read verifies the owners' signatures of all entries that hold. An entry that its owners
// have not signed, or two about the same, are refused with [ErrAuthor], [ErrContent] or
// [tlog.ErrDuplicate]: the log should have taken neither, so nothing in the bundle is used.
//
// An entry that a later version knows is skipped, or each new version of one recipe would
// stop all older devices of the deployment. It is never used, and stands in nobody's way: it
// is about nothing, so that it neither fills the place of an entry that is known nor lets a
// second one through. An owner that wraps something in a version that is not known so gains
// no more than by logging nothing; what owners sign apart from its version (a recipe's
// statement) must be signed all the same. Two entries about the same, one of each version,
// would show old and new devices different things: both stand in the log for all to see.
func (j Judge) Read(entries []tlog.Placed) (*Content, error) {
	x := &Content{Recipes: make(map[recipe.ID][]byte), cohorts: make(map[cohort]uint64), censuses: make(map[census]bool), keys: make(map[keyOf][]byte)}
	seen := make(map[[32]byte]int64)
	for _, p := range entries {
		c, err := j.Claim(p.Entry)
		if errors.Is(err, ErrKind) || errors.Is(err, ErrLater) {
			x.Skipped++
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("entry %d of the log: %w", p.Index, err)
		}
		if first, twice := seen[c.About]; twice {
			return nil, fmt.Errorf("entry %d of the log: %w", p.Index, &tlog.DuplicateError{Index: first})
		}
		seen[c.About] = p.Index
		if err := x.add(p.Entry); err != nil {
			return nil, fmt.Errorf("entry %d of the log: %w", p.Index, err)
		}
	}
	return x, nil
}

// add takes in an entry that was judged.
func (x *Content) add(e tlog.Entry) error {
	switch e.Kind {
	case tlog.KindRecipe:
		s, err := tlog.ReadStatement(e)
		if err != nil {
			return err
		}
		_, id, err := readRecipe(s.Content)
		if err != nil {
			return err
		}
		x.Recipes[id] = s.Content
	case tlog.KindManifest:
		m, err := ohttp.ReadManifest(e.Body)
		if err != nil {
			return err
		}
		x.Manifests = append(x.Manifests, m)
	case tlog.KindFrontManifest:
		m, err := ohttp.ReadManifest(e.Body)
		if err != nil {
			return err
		}
		x.Fronts = append(x.Fronts, m)
	case tlog.KindCohort:
		s, err := tlog.ReadStatement(e)
		if err != nil {
			return err
		}
		said, err := tlog.ReadCohort(s.Content)
		if err != nil {
			return err
		}
		x.Cohorts++
		x.cohorts[cohort{s.Deployment, said.Role, said.Epoch, s.Signature.Delegation.Root}] = said.Devices
	case tlog.KindCensus:
		s, err := tlog.ReadStatement(e)
		if err != nil {
			return err
		}
		h, err := censusHash(s)
		if err != nil {
			return err
		}
		x.Censuses++
		x.censuses[census{s.Deployment, h, s.Signature.Delegation.Root}] = true
	case tlog.KindKeyList:
		x.KeyLists++
	case tlog.KindShuffleKeys:
		l, root, err := onion.ReadKeyList(e.Body)
		if err != nil {
			return err
		}
		x.keys[keyOf{l.Recipe, l.Role, l.First, root}] = e.Body
	case tlog.KindRelease:
		x.Releases++
	}
	return nil
}

// cohort names what one owner says of an epoch.
type cohort struct {
	deployment [32]byte
	role       signed.Role
	epoch      uint32
	root       signed.PublicKey
}

// census names what one owner says of devices with attributes.
type census struct {
	deployment [32]byte
	hash       recipe.Hash
	root       signed.PublicKey
}

// ErrNotCounted: the log does not show that the devices which a recipe asks are so many.
var ErrNotCounted = errors.New("logged: leader and helper have not both logged the census that the recipe asks by")

// Counted says whether the owners of a recipe's leader and helper have both logged the census
// that its certificate names, which must be that of its clauses and lower bound; a recipe for
// everybody needs none. It fails with [ErrNotCounted].
func (x *Content) Counted(r *recipe.Recipe) error {
	if r.Targeting == nil {
		return nil
	}
	deployment, err := r.Deployment()
	if err != nil {
		return err
	}
	h, err := r.Targeting.Census().Hash()
	if err != nil {
		return err
	}
	if h != r.Targeting.Certificate.Entry {
		return fmt.Errorf("%w: its certificate names %s, and the census of its clauses is %s", ErrNotCounted, r.Targeting.Certificate.Entry, h)
	}
	for _, root := range []signed.PublicKey{r.ServerKeys.Leader, r.ServerKeys.Helper} {
		if !x.censuses[census{deployment, h, root}] {
			return fmt.Errorf("%w: %s by the root key %s", ErrNotCounted, h, root)
		}
	}
	return nil
}

// Said is what the owners of both issuers and the attester say of a manifest's epoch, each
// as the manifest names them, by their roles; those who have said nothing are missing.
func (x *Content) Said(m *ohttp.Manifest) map[signed.Role]uint64 {
	roots := make(map[signed.Role]signed.PublicKey)
	for _, s := range m.Signatures {
		if s.Role == signed.Leader || s.Role == signed.Helper {
			roots[s.Role] = s.Signature.Delegation.Root
		}
	}
	return x.said(m, roots)
}

// said is what the owners with some roots, and the attester, say.
func (x *Content) said(m *ohttp.Manifest, roots map[signed.Role]signed.PublicKey) map[signed.Role]uint64 {
	all := make(map[signed.Role]uint64)
	if m.Issuers == nil {
		return all
	}
	roots[signed.Attester] = m.Issuers.Attester
	for role, root := range roots {
		if n, there := x.cohorts[cohort{m.Deployment, role, m.Epoch, root}]; there {
			all[role] = n
		}
	}
	return all
}

// Cohort is what all three of [Content.Said] say; false as long as one of them has said
// nothing.
func (x *Content) Cohort(m *ohttp.Manifest) (c arc.Cohort, ok bool) {
	said := x.Said(m)
	return arc.Cohort{Leader: said[signed.Leader], Helper: said[signed.Helper], Attested: said[signed.Attester]}, len(said) == 3
}
