package cri

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// doubling returns variables that each contain the one before ten times.
func doubling(n int) []v1.EnvVar {
	out := []v1.EnvVar{{Name: "A0", Value: strings.Repeat("x", 100)}}
	for i := 1; i < n; i++ {
		out = append(out, v1.EnvVar{
			Name: fmt.Sprintf("A%d", i), Value: strings.Repeat(fmt.Sprintf("$(A%d)", i-1), 10),
		})
	}
	return out
}

// Text that would exceed what a process can be started with is refused, naming its field, and never
// built.
func TestTooLong(t *testing.T) {
	long := strings.Repeat("x", 1<<19)
	three := doubling(3) // 100, 1,000 and 10,000 bytes
	for name, tt := range map[string]struct {
		c    v1.Container
		want string // the field; "": none is too long
	}{
		"references grow": {v1.Container{Env: doubling(9)}, "env[4]"},
		"many references in one argument": {
			v1.Container{Env: three, Args: []string{"a", strings.Repeat("$(A2)", 200)}}, "args[1]"},
		"in the command": {
			v1.Container{Env: three, Command: []string{strings.Repeat("$(A2)", 200)}},
			"command[0]"},
		"together": {v1.Container{Env: []v1.EnvVar{{Name: "A", Value: long}},
			Args: []string{long}}, "args[0]"},
		"half": {v1.Container{Args: []string{long}}, ""},
		"many short ones": {v1.Container{Env: slicesOf(v1.EnvVar{Name: "A"}, 100_000)},
			"env[95325]"},
		"fewer": {v1.Container{Env: slicesOf(v1.EnvVar{Name: "A"}, 90_000)}, ""},
		"a path": {v1.Container{Env: three,
			VolumeMounts: []v1.VolumeMount{{}, {SubPathExpr: "$(A1)/$(A2)"}}},
			"volumeMounts[1].subPathExpr"},
		"a path of many names": {v1.Container{VolumeMounts: []v1.VolumeMount{
			{SubPathExpr: strings.Repeat("$(NO)", 1000)}}}, "volumeMounts[0].subPathExpr"},
		"not resolved": {v1.Container{EnvFrom: []v1.EnvFromSource{{
			SecretRef: &v1.SecretEnvSource{}}}, Args: []string{long, long}}, ""},
	} {
		pod := testPod()
		tt.c.Name = "c"
		field := ""
		if long := CheckLength(pod, &tt.c, Facts{}); long != nil {
			field = long.Field
		}
		if field != tt.want {
			t.Errorf("%s: %q is too long, want %q", name, field, tt.want)
		}
		if strings.Contains(tt.want, "volumeMounts") || name == "not resolved" {
			continue
		}
		_, err := ContainerConfig(pod, &tt.c, ContainerOptions{})
		if (err != nil) != (tt.want != "") ||
			err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: at its start %v, want %q", name, err, tt.want)
		}
	}
}

// Text that is known only at the start counts too: addresses and the answers of plugins.
func TestTooLongAtTheStart(t *testing.T) {
	pod := testPod()
	c := &v1.Container{Name: "c", Env: []v1.EnvVar{field("IPS", "status.podIPs")},
		Args: slicesOf("$(IPS)$(IPS)", 30_000)}
	if long := CheckLength(pod, c, Facts{}); long != nil {
		t.Fatalf("without addresses: %v", long)
	}
	facts := Facts{PodIPs: []string{"2001:db8:1111:2222:3333:4444:5555:6666"}}
	_, err := ContainerConfig(pod, c, ContainerOptions{Facts: facts})
	if err == nil || !strings.Contains(err.Error(), "args[") {
		t.Errorf("with addresses: %v", err)
	}
}

func slicesOf[T any](value T, n int) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = value
	}
	return out
}

// Unclosed references are scanned once altogether. Scanning each to the end would take minutes.
func TestNeverClosed(t *testing.T) {
	known := scope{map[string]string{"A": "a"}, 1 << 21}
	text := "$(A)" + strings.Repeat("$(", 1<<20-1)
	began := time.Now()
	out, missing, err := known.expand(text)
	if out != "a"+text[len("$(A)"):] || len(missing) > 0 || err != nil {
		t.Errorf("%d bytes, %d missing, error %v", len(out), len(missing), err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	if out, _, err := known.expand("$(A$(A)$$($(A)$("); out != "$(A$(A)$(a$(" || err != nil {
		t.Errorf("%q, error %v", out, err)
	}
}
