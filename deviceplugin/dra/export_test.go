package dra

import (
	"context"
	"net"
)

// Dialling returns the configuration with another way to connect.
func (c Config) Dialling(dial func(ctx context.Context, path string) (net.Conn, error)) Config {
	c.dial = dial
	return c
}
