package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

const someEvents = `{"kind":"EventList","apiVersion":"v1","items":[
	{"metadata":{"name":"1"},"count":1,"type":"Normal","reason":"Started","message":"up",
	 "involvedObject":{"kind":"Pod","namespace":"default","name":"web-node"}},
	{"metadata":{"name":"2"},"count":3,"type":"Warning","reason":"BackOff","message":"again",
	 "source":{"host":"node"},
	 "involvedObject":{"kind":"Pod","namespace":"shop","name":"till-node","fieldPath":"spec.containers{main}"}},
	{"metadata":{"name":"3"},"count":1,"type":"Normal","reason":"Ready","message":"all",
	 "involvedObject":{"kind":"Node","name":"node"}}]}`

func TestEvents(t *testing.T) {
	address := agentWith(t, map[string]string{"/events": someEvents})
	for _, tt := range []struct {
		args  []string
		lines int
		want  string
	}{
		{nil, 4, "Warning  BackOff  pod/shop/till-node  (3 times) again"},
		{[]string{"web-node"}, 2, "Normal  Started  pod/web-node  up"},
		{[]string{"-n", "shop"}, 2, "pod/shop/till-node"},
		{[]string{"default/web-node"}, 2, "Normal  Started  pod/web-node  up"},
		{[]string{"shop/till-node"}, 2, "pod/shop/till-node"},
		{[]string{"shop/till"}, 2, "pod/shop/till-node"},
		{[]string{"till", "-n", "shop", "-c", "main"}, 2, "pod/shop/till-node"},
		{[]string{"shop/till", "-c", "side"}, 1, "No events"},
		{[]string{"shop/web-node"}, 1, "No events of a pod shop/web-node are remembered"},
		{[]string{"shop/till-node/main"}, 2, "BackOff"},
		{[]string{"till-node/main"}, 1, "No events of a pod till-node/main"},
		{[]string{"nobody"}, 1, "No events of a pod default/nobody are remembered"},
		{[]string{"-n", "empty"}, 1, "No events of pods in the namespace empty are remembered."},
		{nil, 4, "node/node"},
	} {
		out, err := run(t, append([]string{"events", "--server", address}, tt.args...)...)
		if err != nil || strings.Count(out, "\n") != tt.lines || !strings.Contains(out, tt.want) {
			t.Errorf("%v: %v, want %d lines and %q:\n%s", tt.args, err, tt.lines, tt.want, out)
		}
	}
	if _, err := run(t, "events", "--server", address, "-n", "shop", "default/web-node/main"); err == nil ||
		!strings.Contains(err.Error(), "leave one of the two out") {
		t.Errorf("two namespaces: %v", err)
	}
	out, err := run(t, "events", "-o", "json", "--server", address)
	if err != nil || !strings.Contains(out, `"kind": "EventList"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

// A watch goes on over a restart of the agent, and says once that it does not answer.
func TestEventsOverARestart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch asked++; asked {
		case 1:
			_, _ = w.Write([]byte(someEvents))
		case 2, 3:
			http.Error(w, "it starts", http.StatusServiceUnavailable)
		case 4:
			_, _ = w.Write([]byte(strings.ReplaceAll(strings.ReplaceAll(someEvents, `"name":"1"`, `"name":"4"`), "up", "up again")))
		default:
			cancel()
		}
	}))
	defer s.Close()
	f := eventsFlags{watch: true, format: "text"}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.server.Add(flags)
	if err := flags.Parse([]string{"--server", s.URL}); err != nil {
		t.Fatal(err)
	}
	var out, problems bytes.Buffer
	if err := f.run(ctx, &out, &problems, nil); err != nil {
		t.Error(err)
	}
	if got := out.String(); strings.Count(got, "\n") != 4 || !strings.HasSuffix(strings.TrimSpace(got), "up again") {
		t.Errorf("printed is\n%s", got)
	}
	if got := problems.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "it starts; the watch goes on") {
		t.Errorf("said is\n%s", got)
	}
}
