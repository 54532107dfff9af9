package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/deviceplugin/failure"
)

func TestPrintClaims(t *testing.T) {
	since := time.Now().Add(-5 * time.Minute)
	all := []claims.Row{
		{Namespace: "ns", Name: "a", Users: []claims.UserRow{{Pod: "p", UID: "u", Ended: true}, {UID: "v"}},
			Drivers: []claims.DriverRow{
				{Driver: "gpu.example.com", State: "Prepared", Since: since, Devices: []string{"n/g0", "n/g1"},
					LastError: "DRA driver gpu.example.com is not registered",
					Failures: []claims.Failure{{Device: "n/g1", Outlook: failure.Outlook{
						Since: time.Now().Add(-time.Minute), Action: failure.FailPod,
						Done: time.Now().Add(-20 * time.Second)}}}},
				{Driver: "nic.example.com", State: "NotCalled", Since: since, Registered: true},
			}},
		{Namespace: "ns", Name: "b", Users: []claims.UserRow{{Pod: "q"}}},
	}
	for want, rows := range map[string][]claims.Row{
		"No pod of this node uses a resource claim.\n": nil,
		`CLAIM  PODS                DRIVER           STATE                     SINCE   DEVICES     LAST ERROR
ns/a   p (ended), UID v    gpu.example.com  Prepared, not registered  5m ago  n/g0, n/g1 (unhealthy for 1m0s; the pod was ended 20s ago)  DRA driver gpu.example.com is not registered
ns/a   p (ended), UID v    nic.example.com  NotCalled                 5m ago  -           -
ns/b   q                   -                -                         -       -           -
`: all,
	} {
		var out bytes.Buffer
		if err := printClaims(&out, rows); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(out.String()), " "); got != strings.Join(
			strings.Fields(want), " ") {
			t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
		}
	}
	if got := saysForgotten(all[0]); got !=
		"ns/a is forgotten; gpu.example.com may still have its devices prepared" {
		t.Error(got)
	}
}

func TestOneClaim(t *testing.T) {
	cmd := newClaimForgetCommand()
	for _, args := range [][]string{nil, {"a"}, {"a/b/c"}, {"a/b", "c/d"}} {
		if err := oneClaim(cmd, args); err == nil || !strings.Contains(err.Error(), "numalet claim list") {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := oneClaim(cmd, []string{"a/b"}); err != nil {
		t.Error(err)
	}
}
