// Package relay implements the party that sees who uploads and not what: it takes
// encapsulated requests from devices (RFC 9458) and passes them on to one gateway, which
// sees the content and not the sender.
//
// [Relay] is an [http.Handler] of one resource. It forwards bytes that it cannot open,
// and nothing of the request's head; where it forwards to is fixed by its configuration,
// and neither a request nor the gateway can change that. It holds a request's whole body
// before it calls the gateway. It writes no file, and neither logs, labels nor stores an
// address: the rate limit counts parts of the network by a hash whose key dies every
// minute ([Rate]).
//
// Package deploy makes a relay process of relay.toml.
//
// A relay that works with the gateway can undo all of this, so their owners must differ.
// Alone it still sees when a device sends, and the padded size; cover requests are
// against that.
package relay
