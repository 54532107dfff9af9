package eni

import (
	"bytes"
	"context"
	"errors"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// A useless file is moved aside.
func TestBadState(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":         "{",
		"another version": `{"version": 2, "records": {}}`,
		"no records":      `{"version": 1}`,
		"null":            `{"version": 1, "records": null}`,
		"no such phase": `{"version": 1, "records": {"eth1": {"resource": "a", "phase": "gone",
			"home": {"id": "eth1", "link": {"state": {"name": "eth1"}}}}}}`,
		"another id": `{"version": 1, "records": {"eth1": {"resource": "a", "phase": "free",
			"home": {"id": "eth2", "link": {"state": {"name": "eth1"}}}}}}`,
	} {
		s := store{t.TempDir()}
		put(t, filepath.Join(s.dir, stateFile), text)
		records, err := s.load()
		var aside *asideError
		if len(records) != 0 || !errors.As(err, &aside) || !exists(aside.aside) || exists(aside.path) {
			t.Errorf("%s: %v, %v", name, records, err)
		}
		if records, err = s.load(); err != nil || records == nil {
			t.Errorf("%s, the next time: %v, %v", name, records, err)
		}
	}
}

// Records from before there were checksums are read.
func TestStateWithoutSum(t *testing.T) {
	s := store{t.TempDir()}
	put(t, filepath.Join(s.dir, stateFile), `{"version": 1, "records": {"eth1": {"resource": "a",
		"phase": "handed", "home": {"id": "eth1", "link": {"state": {"name": "eth1", "up": true}}}}}}`)
	records, err := s.load()
	if r := records["eth1"]; err != nil || r.Phase != Handed || !r.Home.Link.State.Up {
		t.Errorf("%+v, %v", records, err)
	}
}

// A file that is cut off anywhere, or has one wrong byte, is rejected.
func TestDamagedState(t *testing.T) {
	sim, sys := open(t, "rdma")
	k := testKeeper(t, Host{sim, sim, sys}, Rule{Resource: "a", Names: []string{"eth1"}})
	if _, err := k.look(sightOfPods{}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.allocate("a", []string{"0000:00:06.0"}, "uid"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(k.store.dir, stateFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := decode(whole)
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		for _, b := range []byte{whole[at] ^ 1, whole[at] ^ 4, 0, '0', '}'} {
			text := bytes.Clone(whole)
			text[at] = b
			if records, err := decode(text); err == nil && !reflect.DeepEqual(records, want) {
				t.Errorf("byte %d is %q, and this is read: %+v", at, b, records)
			}
		}
		if records, err := decode(whole[:at]); err == nil && !reflect.DeepEqual(records, want) {
			t.Errorf("cut off after %d bytes this is read: %+v", at, records)
		}
	}
}

// A second plugin with the same records waits for the end of the first.
func TestOneKeepsRecords(t *testing.T) {
	sim, sys := open(t, "rdma")
	state := t.TempDir()
	run := func(said *pages) (end func()) {
		cfg := Config{Interfaces: []Rule{{Resource: "example.com/eni", Names: []string{"eth1"}}},
			Places: places(t, t.TempDir(), sys), Log: log.New(said, "", 0), Kernel: sim, Mover: sim}
		cfg.Places.State = state
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- Run(ctx, cfg) }()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	var first, second, third pages
	endFirst := run(&first)
	eventually(t, "the first offers", func() bool { return first.has("is healthy") })
	endSecond := run(&second)
	eventually(t, "the second waits", func() bool {
		return second.has("another process keeps records of interfaces in " + state)
	})
	time.Sleep(2 * lockEvery)
	if second.has("is healthy") {
		t.Error("both offer interfaces")
	}
	endThird := run(&third)
	endThird() // it ends while it waits
	endFirst()
	eventually(t, "the second offers", func() bool { return second.has("is healthy") })
	endSecond()
}
