package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/numalet/numalet/internal/oneline"
)

// Driver describes a driver that has registered since the agent started.
type Driver struct {
	Name string `json:"name"`
	// Instances are the registered plugins, oldest first.
	Instances []Instance `json:"instances,omitempty"`
	// AwaySince is the time since when no plugin is connected; nil: one is.
	AwaySince *time.Time `json:"awaySince,omitempty"`
	// Calls counts finished calls by name; LastError is that of the last failed call.
	Calls       map[string]Calls `json:"calls,omitempty"`
	LastError   string           `json:"lastError,omitempty"`
	LastErrorAt *time.Time       `json:"lastErrorAt,omitempty"`
}

// Problem says why no plugin is connected; "": one is.
func (d Driver) Problem() string {
	switch n := len(d.Instances); {
	case d.AwaySince == nil:
		return ""
	case n == 0:
		return "no plugin is registered"
	default:
		in := d.Instances[n-1]
		return fmt.Sprintf("plugin on %s is not connected: %s", filepath.Base(in.Endpoint), in.Problem)
	}
}

// Instance describes a registered plugin of a driver.
type Instance struct {
	// Endpoint is the path of its socket, Socket that of its socket in the plugin registry.
	Endpoint string `json:"endpoint"`
	Socket   string `json:"socket"`
	// Versions are the services that it lists; Service is the one in use, HealthService that of its
	// devices' health, "" if it lists none.
	Versions      []string `json:"versions"`
	Service       string   `json:"service"`
	HealthService string   `json:"healthService,omitempty"`
	Connected     bool     `json:"connected"`
	// Called: it gets the calls to its driver.
	Called bool `json:"called"`
	// Problem says why it is not connected.
	Problem string `json:"problem,omitempty"`
}

// Calls counts calls with one name.
type Calls struct {
	All    int `json:"all"`
	Failed int `json:"failed"`
	// LastSeconds is how long the last call took.
	LastSeconds float64 `json:"lastSeconds"`
	// LastError is the error of the last call; empty if it succeeded.
	LastError string `json:"lastError,omitempty"`
}

// List returns the drivers, sorted by name.
func (d *Drivers) List() []Driver {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []Driver{}
	for _, of := range d.drivers {
		one := Driver{
			Name: of.name, Calls: maps.Clone(of.tally.calls), LastError: of.tally.last,
		}
		if at := of.tally.at; !at.IsZero() {
			one.LastErrorAt = &at
		}
		if at := of.away; !at.IsZero() {
			one.AwaySince = &at
		}
		for _, in := range of.instances {
			one.Instances = append(one.Instances, in.describe(in == of.newest()))
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b Driver) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// describe needs Drivers' lock.
func (in *instance) describe(called bool) Instance {
	out := Instance{
		Endpoint: in.endpoint, Socket: in.socket, Versions: in.versions, Service: in.service,
		HealthService: in.health, Connected: in.connected, Called: called,
	}
	if !in.connected {
		out.Problem = "it has not answered yet"
		if err := in.link.DialError(); err != nil {
			out.Problem = oneline.Of(err.Error())
		}
	}
	return out
}

// tally counts the calls to one driver.
type tally struct {
	calls map[string]Calls
	last  string // the error of the last failed call
	at    time.Time
}

// counted counts a finished call, unless the driver is no longer known.
func (d *Drivers) counted(driver, rpc string, took time.Duration, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if of := d.drivers[driver]; of != nil {
		of.tally.add(rpc, took, err)
	}
}

func (t *tally) add(rpc string, took time.Duration, err error) {
	if t.calls == nil {
		t.calls = map[string]Calls{}
	}
	c := t.calls[rpc]
	c.All++
	c.LastSeconds, c.LastError = took.Seconds(), ""
	if err != nil {
		c.Failed++
	}
	if err != nil && !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled {
		c.LastError = oneline.Of(strings.TrimPrefix(err.Error(), rpc+": "))
		t.last, t.at = oneline.Of(rpc+": "+strings.TrimPrefix(err.Error(), rpc+": ")), time.Now()
	}
	t.calls[rpc] = c
}
