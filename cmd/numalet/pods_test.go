package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const somePods = `{"items":[
	{"metadata":{"namespace":"default","name":"web-n1"},"spec":{"nodeName":"n1","containers":[{"name":"main"},{"name":"side"}]},
	 "status":{"phase":"Running","containerStatuses":[{"name":"main","restartCount":3}]}},
	{"metadata":{"namespace":"shop","name":"web"},"spec":{"nodeName":"n1","containers":[{"name":"till"}]},
	 "status":{"phase":"Pending"}}]}`

const somePlacements = `[
	{"namespace":"default","pod":"web-n1","container":"main","phase":"Running","reason":"","cpus":"2-3","exclusive":true,
	 "memoryNodes":"0","devices":{"a.b/gpu":["g0","g1"],"gpu.c":["n1/0"]},"deviceHealth":{"a.b/gpu":{"g1":"Unhealthy"}},
	 "numaNodes":"0","aligned":true},
	{"namespace":"default","pod":"web-n1","container":"side","phase":"Running","reason":"","cpus":"0-7","exclusive":false,
	 "memoryNodes":"","devices":{},"numaNodes":"","aligned":null},
	{"namespace":"shop","pod":"web","container":"till","phase":"Pending","reason":"Waits","message":"for a plugin","cpus":"",
	 "exclusive":false,"memoryNodes":"","devices":{},"numaNodes":"","aligned":null}]`

// TestPods: pods are found by their name, the one on their manifest, with namespace and container.
func TestPods(t *testing.T) {
	address := agentWith(t, map[string]string{"/pods": somePods, "/placements": somePlacements})
	main := "web-n1 main Running 3 - 2-3 a.b/gpu=g0,g1 (unhealthy) gpu.c=n1/0 0 -"
	side, till := "web-n1 side Running 0 - shared - - -", "shop/web till Pending 0 - - - - Waits: for a plugin"
	for args, want := range map[string][]string{
		"":                {main, side, till},
		"web":             {main, side},
		"web-n1":          {main, side},
		"web/main":        {main},
		"default/web":     {main, side},
		"web -c side":     {side},
		"shop/web":        {till},
		"web -n shop":     {till},
		"shop/web/till":   {till},
		"-n shop":         {till},
		"-c side":         {side},
		"-n nothing":      nil,
		"web/lost":        {"pod default/web-n1 has no container lost; it has main, side"},
		"none":            {"there is no pod default/none; numalet pods lists"},
		"web -n bank":     {"there is no pod bank/web, but default/web-n1, shop/web"},
		"a/b/c/d":         {"a/b/c/d is no pod: write POD,"},
		"web/main -c a":   {"there is no pod web/main"},
		"shop/web/a -c b": {"shop/web/a is not container b of --container"},
	} {
		out, err := run(t, append([]string{"pods", "--server", address}, strings.Fields(args)...)...)
		var got []string
		for _, line := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if len(got) != len(want) {
			t.Errorf("%q: %q, want %q", args, got, want)
			continue
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("%q: %q, want %q", args, got[i], want[i])
			}
		}
	}
	for args, want := range map[string]string{"web": `"name": "web-n1"`, "-n nothing": `"items": []`} {
		out, err := run(t, append([]string{"pods", "--server", address, "-o", "json"}, strings.Fields(args)...)...)
		if err != nil || !strings.Contains(out, want) || strings.Contains(out, `"shop"`) {
			t.Errorf("%q as JSON: %v\n%s", args, err, out)
		}
	}
}

// TestProblems: each has a line, and none is said to be none.
func TestProblems(t *testing.T) {
	const one = `[{"source":"file","name":"/m/a.yaml","reason":"InvalidManifest","message":"it is empty"}]`
	for answer, want := range map[string]string{
		one:  "file    /m/a.yaml  InvalidManifest  it is empty\n",
		"[]": "Nothing is wrong with manifests, plugins, drivers and volumes.\n",
	} {
		address := agentWith(t, map[string]string{"/problems": answer})
		if out, err := run(t, "problems", "--server", address); err != nil || !strings.HasSuffix(out, want) {
			t.Errorf("%v\n%s", err, out)
		}
		out, err := run(t, "problems", "--server", address, "-o", "json")
		if err != nil || answer == "[]" && out != "[]\n" || answer == one && !strings.Contains(out, `"reason": "Inv`) {
			t.Errorf("as JSON: %v\n%s", err, out)
		}
	}
}

// TestLogs: the log of the container that is meant is asked for with the options, and printed as it comes.
func TestLogs(t *testing.T) {
	asked := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/pods" {
			_, _ = w.Write([]byte(somePods))
			return
		}
		asked = r.URL.RequestURI()
		_, _ = w.Write([]byte("first\nlast\n"))
	}))
	t.Cleanup(s.Close)
	for args, want := range map[string]string{
		"shop/web":                   "/containerLogs/shop/web/till",
		"web -c side --tail 0":       "/containerLogs/default/web-n1/side?tailLines=0",
		"web/main -p --since 90s":    "/containerLogs/default/web-n1/main?previous=true&sinceSeconds=90",
		"web --timestamps --since 1": "",
	} {
		asked = ""
		out, err := run(t, append([]string{"logs", "--server", s.URL}, strings.Fields(args)...)...)
		if asked != want || (err != nil) != (want == "") || err == nil && out != "first\nlast\n" {
			t.Errorf("%s: asked %s, %v, want %s; printed %q", args, asked, err, want, out)
		}
	}
	if out, err := run(t, "logs", "--server", s.URL, "web"); err != nil || asked != "/containerLogs/default/web-n1/main" ||
		!strings.Contains(out, "container main of main, side") {
		t.Errorf("of several containers: asked %s, %v\n%s", asked, err, out)
	}
	if _, err := run(t, "logs", "--server", s.URL); err == nil || !strings.Contains(err.Error(), "name a pod") {
		t.Errorf("of no pod: %v", err)
	}
}

// healthyAgent has the answers of an agent without anything wrong.
func healthyAgent() map[string]string {
	return map[string]string{
		"/pods": somePods, "/version": `{"gitVersion":"v1.2"}`, "/debug/shortage": `{"node":"n1"}`,
		"/problems": "[]", "/plugins": "[]", "/drivers": "[]", "/free": "[]", "/healthz": "ok", "/events": `{"items":[]}`,
	}
}

// TestStatus: what matters is on a line each, and an agent that is not healthy makes the command fail.
func TestStatus(t *testing.T) {
	answers := healthyAgent()
	answers["/plugins"] = `[{"resource":"a.b/gpu","problem":"it has gone"},{"resource":"a.b/nic"}]`
	answers["/free"] = `[{"resource":"a.b/gpu","free":1,"total":2}]`
	out, err := run(t, "status", "--server", agentWith(t, answers))
	const want = `node      n1, numalet v1.2
health    ok
pods      2: 1 running, 1 pending
short of  nothing
problems  none
plugins   2, not connected: a.b/gpu
free      a.b/gpu: 1 of 2
`
	if err != nil || out != want {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run(t, "status", "-o", "json", "--server", agentWith(t, healthyAgent()))
	if err != nil || !strings.Contains(out, `"unhealthy": []`) || strings.Contains(out, "null") {
		t.Errorf("as JSON: %v\n%s", err, out)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			http.Error(w, "[+]ping ok\n[-]pleg failed: reason withheld\nhealthz check failed", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte(healthyAgent()[r.URL.Path]))
	}))
	t.Cleanup(s.Close)
	if out, err := run(t, "status", "--server", s.URL); err == nil || !strings.Contains(out, "health    pleg\n") {
		t.Errorf("not healthy: %v\n%s", err, out)
	}
}

// TestExplainAbsent: of a pod that the agent does not have it says what is known.
func TestExplainAbsent(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	answers := healthyAgent()
	answers["/problems"] = `[{"source":"file","name":"/m/bad.yaml","reason":"InvalidManifest","message":"it is empty"},
		{"source":"file","name":"/m/odd.yaml","reason":"IgnoredField","message":"sepc"}]`
	answers["/events"] = `{"items":[{"reason":"Killing","message":"Stopping container main","source":{"host":"n1"},
		"involvedObject":{"kind":"Pod","namespace":"default","name":"past-n1"}}]}`
	address := agentWith(t, answers)
	for pod, want := range map[string]string{
		"bad":    "There is no pod default/bad: file /m/bad.yaml: InvalidManifest: it is empty",
		"bad-n1": "There is no pod default/bad-n1: file /m/bad.yaml",
		"past":   "Pod default/past-n1 is gone from the node, or ended before this agent started. What happened\n  ",
		"odd":    "404 page not found", // a field was ignored, and nothing refused
		"none":   "404 page not found",
	} {
		out, err := run(t, "explain", pod, "--server", address)
		if got := strings.TrimSuffix(fmt.Sprint(out, err), "<nil>"); !strings.Contains(got, want) &&
			(err == nil || !strings.Contains(want, "404")) {
			t.Errorf("%s: %s, want %s", pod, got, want)
		}
	}
}

// TestElsewhere: where the API server has a pod that the agent does not have.
func TestElsewhere(t *testing.T) {
	n := podName{"shop", "web", ""}
	for want, pod := range map[string]v1.Pod{
		"Pod shop/web is bound to node n2, running: ask that one, with --node n2\n": {
			Spec: v1.PodSpec{NodeName: "n2"}, Status: v1.PodStatus{Phase: v1.PodRunning}},
		"No scheduler has bound pod shop/web to a node, so no agent has decided on it; scheduler s says Unschedulable: " +
			"0/3 nodes\n": {Spec: v1.PodSpec{SchedulerName: "s"}, Status: v1.PodStatus{Conditions: []v1.PodCondition{
			{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes"}}}},
		"No scheduler has bound pod shop/web to a node, so no agent has decided on it; scheduler s has not said why: does " +
			"it run?\n": {Spec: v1.PodSpec{SchedulerName: "s"}},
		"No scheduler has bound pod shop/web to a node: its scheduling gates a.b/c keep it\n": {
			Spec: v1.PodSpec{SchedulingGates: []v1.PodSchedulingGate{{Name: "a.b/c"}}}},
	} {
		pod.ObjectMeta = metav1.ObjectMeta{Namespace: "shop", Name: "web"}
		if got := elsewhere(&pod, n); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
