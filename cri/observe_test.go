package cri

import (
	"testing"
	"time"
)

// The order of sandboxes and containers is right even if the clock was set back between them.
func TestNewestFirst(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := Pod{
		Sandboxes: []Sandbox{{ID: "s0", CreatedAt: at}, {ID: "s1", Attempt: 1, CreatedAt: at.Add(-time.Hour)}},
		Containers: []Container{
			{ID: "c0", Name: "a", CreatedAt: at},
			{ID: "c2", Name: "a", Attempt: 2, CreatedAt: at.Add(-time.Minute)},
			{ID: "c1", Name: "a", Attempt: 1, CreatedAt: at.Add(-time.Hour)},
		},
	}
	p.sort()
	if newest, _ := p.Container("a"); newest.ID != "c2" || p.Containers[2].ID != "c0" {
		t.Errorf("containers %+v", p.Containers)
	}
	if p.Sandboxes[0].ID != "s1" {
		t.Errorf("sandboxes %+v", p.Sandboxes)
	}
}
