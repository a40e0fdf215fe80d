package wire

import "time"

// maxSeconds bounds times, in seconds since 1970: the year 36812.
const maxSeconds = 1 << 40

// Seconds is a time of whole seconds since 1970, in 64 bits of which 40 are used, UTC.
func (c *Coder) Seconds(t *time.Time, what string) {
	n := uint64(t.Unix())
	c.Uint64(&n, what)
	if c.writing || c.err != nil {
		return
	}
	if n >= maxSeconds {
		c.Fail(what + ": time out of bounds")
		return
	}
	*t = time.Unix(int64(n), 0).UTC()
}

// Duration32 is a duration of whole seconds, in 32 bits.
func (c *Coder) Duration32(d *time.Duration, what string) {
	n := uint32(*d / time.Second)
	if c.Uint32(&n, what); !c.writing {
		*d = time.Duration(n) * time.Second
	}
}
