// Package objects keeps payload in S3-compatible object storage: the engine of many
// replicas ([payload.Store]). Of Amazon's SDK it takes what signs requests: the client of
// S3 has over a hundred calls, of which this needs four, and would be a sixth of the
// program.
//
// It asks four things of the store, besides five calls of S3: reads see every write that
// was answered; a put with If-None-Match: * fails where there is an object (Amazon S3
// does so, Google's and Azure's gateways, Ceph, versitygw); ranges; and keys listed in
// byte order, which the directories of S3 Express do not. [payload.Probe] finds out.
//
// An object goes to the store with its CRC-32C, which the store checks. A range comes
// back without: the reader compares with the checksum in its row.
//
// Credentials are read from their file for each request, so a file that is replaced
// counts from the next one on. A request that is denied while the file changes is made
// again.
package objects
