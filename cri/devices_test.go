package cri

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// The time to merge answers grows with their length, not with its square.
func TestManySettings(t *testing.T) {
	const many = 100_000 // squared, minutes
	answer := &v1beta1.ContainerAllocateResponse{Envs: map[string]string{}}
	for i := range many {
		path := fmt.Sprint("/dev/", i)
		answer.Envs[fmt.Sprint("E", i)] = "x"
		answer.Devices = append(answer.Devices, &v1beta1.DeviceSpec{ContainerPath: path})
		answer.Mounts = append(answer.Mounts, &v1beta1.Mount{ContainerPath: path})
		answer.CdiDevices = append(answer.CdiDevices, &v1beta1.CDIDevice{Name: path})
	}
	done := make(chan settings, 1)
	go func() {
		done <- deviceSettings([]*v1beta1.ContainerAllocateResponse{answer, answer})
	}()
	select {
	case s := <-done:
		for _, n := range []int{len(s.envs), len(s.devices), len(s.mounts), len(s.cdi)} {
			if n != many {
				t.Errorf("%d settings, want %d", n, many)
			}
		}
	case <-time.After(time.Minute):
		t.Fatal("the answers are not merged yet")
	}
}

// wordy is a runtime with long error messages.
type wordy struct {
	internalapi.RuntimeService
	err error
}

func (w wordy) StartContainer(context.Context, string) error { return w.err }

func (w wordy) RunPodSandbox(context.Context, *runtimeapi.PodSandboxConfig, string) (
	string, error) {
	return "", w.err
}

// Errors of the runtime become one line, with the code and the start of the message.
func TestRuntimeErrorsAreOneLine(t *testing.T) {
	whole := status.Error(codes.NotFound, "no such\n\tcontainer\n"+strings.Repeat("x", 1<<20))
	r := measuredRuntime{wordy{err: whole}, newMeasures()}
	_, sandbox := r.RunPodSandbox(t.Context(), nil, "")
	for _, err := range []error{r.StartContainer(t.Context(), "c"), sandbox} {
		if text := err.Error(); len(text) > 1024 || strings.Contains(text, "\n") ||
			!strings.Contains(text, "desc = no such container xxx") ||
			!errors.Is(err, whole) || status.Code(err) != codes.NotFound {
			t.Errorf("the error is %q", text)
		}
	}
	if err := (measuredRuntime{wordy{}, newMeasures()}).StartContainer(t.Context(), "c"); err != nil {
		t.Errorf("without an error: %v", err)
	}
}
