package csi

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Driver describes a driver for people. A driver that is no longer registered has only a name.
type Driver struct {
	Name       string            `json:"name"`
	Registered bool              `json:"registered"`
	Since      time.Time         `json:"since,omitzero"` // of the registration
	Endpoint   string            `json:"endpoint,omitempty"`
	Version    string            `json:"version,omitempty"`
	NodeID     string            `json:"nodeID,omitempty"`
	MaxVolumes int64             `json:"maxVolumes,omitempty"` // 0: there is no limit
	Topology   map[string]string `json:"topology,omitempty"`
	// Calls are by method, since the registration.
	Calls       map[string]Count `json:"calls,omitempty"`
	LastError   string           `json:"lastError,omitempty"`
	LastErrorAt *time.Time       `json:"lastErrorAt,omitempty"`
}

// Count counts calls.
type Count struct {
	All    int `json:"all"`
	Failed int `json:"failed,omitempty"`
}

// List returns the drivers that are registered or were since New, by name.
func (d *Drivers) List() []Driver {
	d.mu.Lock()
	all, left := maps.Clone(d.drivers), maps.Clone(d.left)
	d.mu.Unlock()
	out := []Driver{}
	for name := range left {
		out = append(out, Driver{Name: name})
	}
	for name, one := range all {
		said := one.tally()
		row := Driver{Name: name, Registered: true, Since: one.since, Endpoint: one.endpoint,
			Version: one.version.String(), NodeID: one.node.NodeID, MaxVolumes: one.node.MaxVolumes,
			Topology: one.node.Topology, Calls: said.calls, LastError: said.last}
		if !said.failure.IsZero() {
			row.LastErrorAt = &said.failure
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b Driver) int { return strings.Compare(a.Name, b.Name) })
	return out
}
