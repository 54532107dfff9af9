package claims

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/deviceplugin/failure"
)

// noFailures knows of no unhealthy device.
func noFailures() map[failure.Device]failure.Outlook { return nil }

// ask sends a request to the routes.
func ask(m *Manager, method, path, body string) (code int, text string) {
	for _, r := range append(Routes(m), ListRoute(m, noFailures)) {
		if r.Method == method && r.Pattern == path {
			w := httptest.NewRecorder()
			r.Handler.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
			return w.Code, strings.TrimSpace(w.Body.String())
		}
	}
	return 0, ""
}

// A claim whose driver never comes back is listed with what holds it, and can be forgotten once no
// pod runs with it: then its pod may end, and it is told what stays behind.
func TestListAndForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := n.pod("p", "a")
		n.claim("a", []string{gpus, nics}, pod)
		if _, text := ask(n.Manager, http.MethodGet, "/claims", ""); text != "[]" {
			t.Errorf("at first %s", text)
		}
		if err := n.Prepare(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		const question = `{"namespace": "ns", "name": "a"}`
		code, text := ask(n.Manager, http.MethodPost, "/claims/forget", question)
		if code != http.StatusConflict ||
			text != "ResourceClaim ns/a is used by pod p; delete the pod first" {
			t.Errorf("while the pod runs: %d %s", code, text)
		}
		n.expect(t, "prepare gpu a", "prepare nic a")
		n.hang[nics] = make(chan struct{})
		n.set(func() { n.usable.Delete(gpus) })
		n.Release(pod.UID)
		n.expect(t, "unprepare nic a")
		code, text = ask(n.Manager, http.MethodPost, "/claims/forget", question)
		if code != http.StatusConflict || !strings.HasPrefix(text, "a call to DRA driver nic") {
			t.Errorf("while a driver is called: %d %s", code, text)
		}
		close(n.hang[nics])
		n.expect(t)
		var rows []Row
		_, text = ask(n.Manager, http.MethodGet, "/claims", "")
		if err := json.Unmarshal([]byte(text), &rows); err != nil {
			t.Fatal(err)
		}
		gpu, nic := rows[0].Drivers[0], rows[0].Drivers[1]
		if len(rows) != 1 || rows[0].Users[0] != (UserRow{"p", pod.UID, true}) ||
			gpu.State != "Prepared" || gpu.Registered || !slices.Equal(gpu.Devices, []string{"n/dev-a"}) ||
			gpu.LastError != "DRA driver gpu.example.com is not registered" ||
			nic.State != "NotCalled" || !nic.Registered || nic.LastError != "" {
			t.Errorf("listed is %s", text)
		}
		code, text = ask(n.Manager, http.MethodPost, "/claims/forget", question)
		if code != http.StatusOK || n.Held(pod.UID) != nil {
			t.Errorf("%d %s, held %v", code, text, n.Held(pod.UID))
		}
		n.expect(t, "settled uid-p")
		why := "ResourceClaimForgotten: ResourceClaim a is not unprepared on this node: an " +
			"administrator had it forgotten; DRA driver gpu.example.com may still have its devices prepared"
		if want := []string{"ResourceClaim a " + why, "Pod p " + why}; !slices.Equal(n.reported, want) {
			t.Errorf("told %q\nwant %q", n.reported, want)
		}
		if code, text = ask(n.Manager, http.MethodPost, "/claims/forget", question); code !=
			http.StatusNotFound || !strings.HasPrefix(text, "ns/a: no pod of this node") {
			t.Errorf("once more: %d %s", code, text)
		}
	})
}

// A question that does not say what is meant is refused; a node without claims answers too.
func TestQuestions(t *testing.T) {
	for body, want := range map[string]string{
		"":                                "is empty",
		`{"namespace": "ns"}`:             "ns/ is not the namespace and name",
		`{"namespace": "N", "name": "a"}`: "N/a is not the namespace and name",
		`{"namespace": "n", "name": "a", "x": 1}`: "x: unknown field",
		`{"namespace": "n", "name": "a", "b": "}`: "the question: ",
		strings.Repeat(" ", maxQuestion+1):        "too large",
		`{"namespace": "ns", "name": "a"}`:        "no pod of this node uses such a ResourceClaim",
		`{"namespace": "ns", "name": ["a"]}`:      "name: ",
		`{"namespace":"n","name":"a","name":"b"}`: "duplicate field",
	} {
		code, text := ask(nil, http.MethodPost, "/claims/forget", body)
		if code < 400 || !strings.Contains(text, want) {
			t.Errorf("%.40s: %d %s, want %q", body, code, text, want)
		}
	}
	if code, text := ask(nil, http.MethodGet, "/claims", ""); code != http.StatusOK || text != "[]" {
		t.Errorf("a node without claims: %d %s", code, text)
	}
}

// An unhealthy device is listed for each pod and container that has it by the claim.
func TestListFailures(t *testing.T) {
	rows := []Row{{Name: "gpus", Users: []UserRow{{Pod: "b", UID: "2"}, {Pod: "a", UID: "1"}},
		Drivers: []DriverRow{{Driver: "x", Devices: []string{"p/g0"}}, {Driver: "y", Devices: []string{"p/g0"}}}}}
	known, o := map[failure.Device]failure.Outlook{}, failure.Outlook{Since: time.Unix(1, 0), Action: failure.Event}
	for _, d := range []failure.Device{
		{Pod: "1", Container: "main", Resource: "claim gpus", Driver: "x", Pool: "p", ID: "g0"},
		{Pod: "2", Container: "main", Resource: "example.com/gpu", Driver: "x", Pool: "p", ID: "g0"},
		{Pod: "1", Container: "main", Resource: "claim gpus", Driver: "x", Pool: "p", ID: "g1"},
		{Pod: "3", Container: "main", Resource: "claim gpus", Driver: "x", Pool: "p", ID: "g0"},
		{Pod: "1", Container: "main", Resource: "example.com/gpu", ID: "g0"},
	} {
		known[d] = o
	}
	addFailures(rows, known)
	want := []Failure{{"p/g0", "a", "main", o}, {"p/g0", "b", "main", o}}
	if diff := cmp.Diff(want, rows[0].Drivers[0].Failures); diff != "" || rows[0].Drivers[1].Failures != nil {
		t.Errorf("(-want +got):\n%s\n%+v", diff, rows[0].Drivers[1])
	}
}
