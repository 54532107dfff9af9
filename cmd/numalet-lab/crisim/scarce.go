package crisim

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// names maps the names in use to the ids of their owners.
type names map[string]string

func (n names) reserve(kind, name, id string) error {
	if owner, ok := n[name]; ok {
		return status.Errorf(codes.Unknown,
			"failed to reserve %s name %q: name %q is reserved for %q", kind, name, name, owner)
	}
	n[name] = id
	return nil
}

// addresses holds the addresses of 10.88.0.0/16 in use, and the last one given.
type addresses struct {
	used map[string]bool
	last int
}

func (a *addresses) take() (string, error) {
	const hosts = 1 << 16
	for range hosts {
		a.last = (a.last + 1) % hosts
		hi, lo := a.last>>8, a.last&255
		ip := fmt.Sprintf("10.88.%d.%d", hi, lo)
		if lo != 0 && lo != 255 && !a.used[ip] {
			a.used[ip] = true
			return ip, nil
		}
	}
	return "", status.Error(codes.ResourceExhausted, "no free address in 10.88.0.0/16")
}

// clock holds the last time it returned, in ns.
type clock int64

// now increases strictly, so that times give the order of events.
func (c *clock) now() int64 {
	*c = max(clock(time.Now().UnixNano()), *c+1)
	return int64(*c)
}
