package logs

import (
	"net/http"
	"net/http/httptest"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

// aPod has a container in every possible state.
func aPod() *v1.Pod {
	pod := podtest.New("ns/p", podtest.UID("u"), podtest.Containers("init!", "new?"))
	ended := func(id string) *v1.ContainerStateTerminated {
		return &v1.ContainerStateTerminated{ContainerID: id}
	}
	waiting := func(reason string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
	}
	for _, s := range []v1.ContainerStatus{
		{Name: "runs", ContainerID: "sim://now", State: v1.ContainerState{
			Running: &v1.ContainerStateRunning{}},
			LastTerminationState: v1.ContainerState{Terminated: ended("sim://before")}},
		{Name: "ended", State: v1.ContainerState{Terminated: ended("sim://now")}},
		{Name: "crashed", State: waiting("CrashLoopBackOff"),
			LastTerminationState: v1.ContainerState{Terminated: ended("sim://now")}},
		{Name: "creating", State: waiting("ContainerCreating")},
		{Name: "pull", State: waiting("ErrImagePull")},
		{Name: "backoff", State: waiting("ImagePullBackOff")},
		{Name: "lost", State: v1.ContainerState{Terminated: ended("")}},
		{Name: "unknown"},
		{Name: "removed", State: v1.ContainerState{Terminated: ended("sim://removed")}},
		{Name: "unwritten", State: v1.ContainerState{Terminated: ended("sim://unwritten")}},
	} {
		podtest.Containers(s.Name)(pod)
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, s)
	}
	pod.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "init",
		State: v1.ContainerState{Terminated: ended("sim://now")}}}
	return pod
}

// TestRoute: the answers to all requests, with the kubelet's words for a missing log.
func TestRoute(t *testing.T) {
	now, before := threeFiles(t), threeFiles(t)
	write(t, now.Path, "\n")
	route := func(split bool) http.Handler {
		r := Route(Config{
			Pod: func(namespace, name string) (*v1.Pod, bool) {
				return aPod(), namespace == "ns" && name == "p"
			},
			Observed: func(types.UID) (cri.Pod, bool) {
				return cri.Pod{Containers: []cri.Container{
					{ID: "now", State: cri.ContainerExited, From: cri.Origin{LogPath: now.Path}},
					{ID: "before", From: cri.Origin{LogPath: before.Path}},
					{ID: "unwritten", From: cri.Origin{LogPath: now.Path + ".none"}},
				}}, true
			},
			SplitStreams: split,
		})
		mux := http.NewServeMux()
		mux.Handle(r.Pattern, r.Handler)
		return mux
	}
	all := "zero\none\ntwo\nthree\nfour\nfive\nsix\n"
	waits := func(name string) string {
		return `container "` + name + `" in pod "p" is waiting to start`
	}
	for _, tc := range []struct {
		path string
		code int
		body string
	}{
		{"ns/p/runs", 200, all}, {"ns/p/ended", 200, all}, {"ns/p/crashed", 200, all},
		{"ns/p/init", 200, all}, {"ns/p/runs?previous=true", 200, all},
		{"ns/p/runs?previous=false&tailLines=2&timestamps=true", 200,
			shown(5) + " five\n" + shown(6) + " six\n"},
		{"ns/p/runs?tail=1", 200, "six\n"}, {"ns/p/runs?tail=all", 200, all},
		{"ns/p/runs?limitBytes=3", 200, "zer"},
		{"ns/p/runs?sinceTime=2020-11-22T10:00:06Z", 200, "six\n"},
		{"ns/p/runs?sinceSeconds=1", 200, ""}, // the test's lines are old
		{"ns/p/runs?sinceSeconds=3000000000", 200, all},
		{"ns/p/runs?sinceSeconds=9223372036854775807", 200, all},
		{"ns/p/runs?follow=true&tailLines=1", 200, "six\n"},
		{"ns/p/runs?stream=All&tailLines=1", 200, "six\n"},

		{"ns/other/runs", 404, `pod "other" does not exist`},
		{"x/p/runs", 404, `pod "p" does not exist`},
		{"ns/p/other", 404, `container "other" not found in pod "p"`},
		{"ns/p/creating", 400, waits("creating") + ": ContainerCreating"},
		{"ns/p/pull", 400, waits("pull") + ": image can't be pulled"},
		{"ns/p/backoff", 400, waits("backoff") + ": trying and failing to pull image"},
		{"ns/p/unknown", 400, waits("unknown") + " - no logs yet"},
		{"ns/p/lost", 400, `container "lost" in pod "p" is terminated`},
		{"ns/p/new", 400, `container "new" in pod "p" is not available`},
		{"ns/p/ended?previous=true", 400,
			`previous terminated container "ended" in pod "p" not found`},
		{"ns/p/removed", 400, "unable to retrieve container logs for removed: the container " +
			"runtime has it no more"},
		{"ns/p/unwritten", 400, "no log file of the container is there: it was removed, or " +
			"nothing was written yet"},
		{"ns/p/runs?tailLines=x", 400, `{"message": "Unable to decode query."}`},
		{"ns/p/runs?sinceTime=noon", 400, `{"message": "Unable to decode query."}`},
		{"ns/p/runs?tailLines=-1", 422, `{"message": "Invalid request."}`},
		{"ns/p/runs?limitBytes=0", 422, `{"message": "Invalid request."}`},
		{"ns/p/runs?sinceSeconds=0", 422, `{"message": "Invalid request."}`},
		{"ns/p/runs?sinceSeconds=1&sinceTime=2020-11-22T10:00:06Z", 422,
			`{"message": "Invalid request."}`},
		{"ns/p/runs?stream=Stdlog", 422, `{"message": "Invalid request."}`},
		{"ns/p/runs?stream=Stdout&tailLines=1", 422, `{"message": "Invalid request."}`},
		{"ns/p/runs?stream=Stderr", 400, `unable to return the given log stream: "Stderr". ` +
			`Please enable PodLogsQuerySplitStreams feature gate in kubelet`},
	} {
		code, body := get(route(false), "/containerLogs/"+tc.path)
		if code != tc.code || body != tc.body {
			t.Errorf("%s: %d %q, want %d %q", tc.path, code, body, tc.code, tc.body)
		}
	}
	if code, body := get(route(true), "/containerLogs/ns/p/runs?stream=Stderr"); code != 200 ||
		body != "one\nfour\n" {
		t.Errorf("one stream: %d %q", code, body)
	}
}

func get(h http.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}
