// Package dap reads and writes the wire format of DAP, the Distributed Aggregation
// Protocol (draft-ietf-ppm-dap-18 and -19): its messages, the strings and bytes that its
// encryption binds, its error types, media types and paths. It is pure: no network, no
// clock, no log. Section numbers in comments are draft 18's.
//
// # Model
//
// A client splits a measurement into two shares, seals one to the leader and one to the
// helper, and uploads both to the leader as a [Report]. The leader sends the helper its
// shares in aggregation jobs ([AggregationJobInitReq]); both verify the reports together,
// learning nothing else, and add up what holds. For a batch of at least
// [TaskConfiguration.MinBatchSize] reports the collector asks the leader
// ([CollectionJobReq]), the leader asks the helper ([AggregateShareReq]), and the
// collector opens two aggregate shares ([CollectionJobResp]).
//
//	client     leader       helper         collector
//	  | Reports  |            |                |
//	  |--------->| AggregationJobInitReq       |
//	  |          |----------->|                |
//	  |          | VerifyResps|                |
//	  |          |<-----------|                |
//	  |          |            | CollectionJobReq
//	  |          |<----------------------------|
//	  |          | AggregateShareReq           |
//	  |          |----------->|                |
//	  |          | AggregateShare              |
//	  |          |<-----------| CollectionJobResp
//	  |          |---------------------------->|
//
// The payloads inside are those of package vdaf, ping-pong framing included; [NewVDAF]
// makes the VDAF of a task.
//
// # Drafts and framings
//
// A task speaks one [Version] of the drafts, which is a value of the task: it has the
// strings that encryption and proofs bind, and what else differs. Another implementation
// may wrap the same messages in another [Framing]. The two together are a [Dialect],
// which reads and writes the few messages that are not the same in all.
//
// # Messages
//
// Every message is a struct with an Append method and a Read function. Append fails, and
// returns dst as it was, if a field does not fit. Read takes exactly one message, in its
// only encoding: truncated and trailing bytes, lengths and enum values out of bounds and
// empty ciphertexts fail with [ErrMalformed]. Messages that were read alias the input,
// and reading takes no memory in proportion to what a length prefix claims.
//
// The long messages ([Reports], [Dialect.UploadErrors], [Dialect.VerifyResps], and the
// insides of the two aggregation job requests) are read by iterators under [Limits], and
// gathered with [Collect]. Where bytes are bound or stored as they came, the struct keeps
// them: [TaskConfiguration.Bytes], [Report.Bytes], [CollectionJobReq.Bytes].
//
// Lists of extensions are only framed here. Whether one must be known and in order is for
// each party to ask and to answer in its own way; [Extensions] has the table.
//
// # Time
//
// [Time] and [Duration] count units of the task's [TimePrecision], never seconds, and
// only [TimePrecision] converts. Intervals are half-open and overflow is checked.
//
// # Encryption
//
// [Version.InputShareInfo], [InputShareAAD], [Version.AggregateShareInfo] and
// [AggregateShareAAD] are what HPKE binds; package sealed does the HPKE, and [Seal],
// [NewHpkeConfig] and [HpkeConfig.PublicKey] connect the two.
//
// # Errors
//
// A refused report has a [ReportError]. A refused request has a [Problem]. Errors of this
// package's own wrap [ErrMalformed], [ErrLimit] or [ErrMediaType]; all three are
// invalidMessage to a peer.
package dap
