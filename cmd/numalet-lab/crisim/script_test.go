package crisim

import (
	"reflect"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestScripts(t *testing.T) {
	forever := Script{TermCode: 143}
	exits := func(code int32, after time.Duration) Script {
		return Script{Exits: true, Exit: Exit{Code: code}, After: after, TermCode: 143}
	}
	stubborn, zero := forever, int32(0)
	stubborn.IgnoreTerm = true
	for _, c := range []struct {
		annotation, command, image string // command is split at |
		attempt                    uint32
		want                       Script
	}{
		{want: forever},
		{image: "sim.local/run:1", want: forever},
		{image: "sim.local/exit:3", want: exits(3, 0)},
		{image: "exit:x", want: forever},
		{image: "sim.local/exit:3", command: "sleep|5", want: exits(0, 5*time.Second)},
		{command: "sleep|0.5", want: exits(0, 500*time.Millisecond)},
		{command: "sleep|1d", want: exits(0, 24*time.Hour)},
		{command: "sleep|infinity", want: forever},
		{command: "/app/server|--port=1", want: forever},
		{command: "sh|-c|sleep 1; exit 4", want: exits(4, time.Second)},
		{command: "/bin/sh|-c|echo hi && false", want: exits(1, 0)},
		{command: "sh|-c|exit 1; exit 2", want: exits(1, 0)},
		{command: "sh|-c|exec sleep inf", want: forever},
		{command: "sh|-c|while true; do sleep 1; done", want: forever},
		{command: "sh|-c|trap '' TERM; sleep inf", want: stubborn},
		{command: "true", want: exits(0, 0)},
		{annotation: "term=ignore", command: "true", want: stubborn},
		{annotation: "exit=2 after=1ms", want: exits(2, time.Millisecond)},
		{
			annotation: "exit=137 reason=OOMKilled message=bye attempts=2", attempt: 1,
			want: Script{
				Exits: true, Attempts: 2, TermCode: 143,
				Exit: Exit{Code: 137, Reason: "OOMKilled", Message: "bye"},
			},
		},
		{
			annotation: "exit=1 attempts=2", attempt: 2,
			want: Script{Attempts: 2, TermCode: 143, Exit: Exit{Code: 1}},
		},
		{
			annotation: "exit=0 reason=OOMKilled attempts=1 then=0", attempt: 1,
			want: Script{Exits: true, Attempts: 1, Then: &zero, TermCode: 143},
		},
		{
			annotation: "term=0 term-after=2s start-error=x",
			want:       Script{TermAfter: 2 * time.Second, StartError: "x"},
		},
	} {
		t.Run(c.annotation+" "+c.command+" "+c.image, func(t *testing.T) {
			pod := &runtimeapi.PodSandboxConfig{}
			if c.annotation != "" {
				pod.Annotations = map[string]string{AnnotationPrefix + "c": c.annotation}
			}
			ctr := &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: c.attempt},
				Image:    &runtimeapi.ImageSpec{Image: c.image},
			}
			if c.command != "" {
				ctr.Command = strings.Split(c.command, "|")
			}
			got, err := ScriptFor(pod, ctr)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, c.want)
			}
		})
	}
}

func TestBadScripts(t *testing.T) {
	for text, want := range map[string]string{
		"exit=256":   "exit:",
		"exit=-1":    "exit:",
		"after=soon": "after:",
		"die":        `unknown key "die"; known are exit`,
	} {
		if _, err := ParseScript(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}
