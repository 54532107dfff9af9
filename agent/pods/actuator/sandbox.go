package actuator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/allocation/handover"
	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/cri"
)

// networkAgain is the time after which a pod without a network tries again.
const networkAgain = time.Second

// replaceSandbox stops the previous sandbox, if there was one, and creates a new one. A sandbox
// that died by itself keeps its address and host ports until it is stopped.
func (b build) replaceSandbox(ctx context.Context, observed cri.Pod, attempt uint32) (string, error) {
	if len(observed.Sandboxes) > 0 {
		b.cfg.Tell.Event(b.pod, v1.EventTypeNormal, "SandboxChanged",
			"Pod sandbox changed, it will be killed and re-created.")
		err := b.cfg.Runtime.StopPodSandbox(ctx, observed.Sandboxes[0].ID)
		if err != nil && status.Code(err) != codes.NotFound {
			return "", b.killed(ctx, b.pod, err)
		}
	}
	return b.createSandbox(ctx, attempt)
}

// createSandbox makes everything that comes before the first container. A pod with a network of its
// own waits until the runtime has a network; pods in the host's network may be what provides it.
func (b build) createSandbox(ctx context.Context, attempt uint32) (id string, err error) {
	if why := b.node.Network.Problem(); why != "" && !b.pod.Spec.HostNetwork {
		message := "network is not ready: " + why
		b.say.warn("NetworkNotReady", message)
		return "", &cri.StartError{Reason: cri.ReasonCreatePodSandbox, Message: message,
			RetryAt: time.Now().Add(networkAgain)}
	}
	handler, err := b.handler(ctx)
	if err == nil {
		err = b.checkUsers(handler)
	}
	if err == nil {
		b, err = b.withUsers()
	}
	if err != nil {
		b.say.warn("FailedCreatePodSandBox", fmt.Sprintf("Failed to create pod sandbox: %v", err))
		return "", sandboxError(err)
	}
	return b.makeSandbox(ctx, attempt, handler)
}

// makeSandbox makes the pod's cgroup, sandbox and volumes. The volumes, which may wait for the API
// server, are made beside the cgroup and, unless something of them may be missing, beside the
// sandbox: a volume that another pod of the node has is there.
func (b build) makeSandbox(ctx context.Context, attempt uint32, handler string) (
	sandbox string, err error) {
	beside := b.cfg.Volumes.Beside(b.pod)
	var both errgroup.Group
	both.Go(func() (err error) {
		if err = b.makeCgroup(ctx); err == nil && beside {
			sandbox, err = b.runSandbox(ctx, attempt, handler)
		}
		return err
	})
	both.Go(func() error { return b.setUpVolumes(ctx) })
	err = both.Wait()
	switch {
	case err == nil && !beside:
		b.node.Security.ExtraGroups = b.cfg.Volumes.Containers.Groups(b.pod)
		sandbox, err = b.runSandbox(ctx, attempt, handler)
	case err != nil && sandbox != "": // without volumes a pod has no sandbox
		b.takeBack(ctx, sandbox)
	}
	if err != nil {
		return "", sandboxError(err)
	}
	return sandbox, nil
}

// runSandbox has the runtime make the sandbox, and returns its id. A failure becomes an event.
func (b build) runSandbox(ctx context.Context, attempt uint32, handler string) (string, error) {
	id, err := b.requestSandbox(ctx, attempt, handler)
	if err != nil {
		b.say.warn("FailedCreatePodSandBox", "Failed to create pod sandbox: "+messageOf(err))
	}
	return id, err
}

func (b build) requestSandbox(ctx context.Context, attempt uint32, handler string) (string, error) {
	if err := os.MkdirAll(cri.PodLogDir(b.node.Logs.Dir, b.pod), 0o755); err != nil {
		return "", err
	}
	config, problems, err := b.sandboxConfig(attempt)
	if err != nil {
		return "", err
	}
	b.say.dns(problems)
	return b.cfg.Runtime.RunPodSandbox(ctx, config, handler)
}

// takeBack stops and removes a sandbox in which nothing was started. If that fails, the pod keeps
// the sandbox, and its volumes are made before its first container.
func (a *Actuator) takeBack(ctx context.Context, sandbox string) {
	err := a.cfg.Runtime.StopPodSandbox(ctx, sandbox)
	if err == nil {
		err = a.cfg.Runtime.RemovePodSandbox(ctx, sandbox)
	}
	if err != nil {
		klog.FromContext(ctx).Info("A sandbox without volumes stays", "sandbox", sandbox, "err", err)
	}
}

func (b build) makeCgroup(ctx context.Context) error {
	if b.cfg.Cgroups == nil {
		return nil
	}
	err := b.cfg.Cgroups.EnsurePod(ctx, b.pod, b.resources.Pod(b.pod))
	if err != nil {
		b.say.warn("FailedCreatePodContainer",
			fmt.Sprintf("unable to ensure pod container exists: %v", err))
	}
	return err
}

func sandboxError(err error) error {
	if _, known := errors.AsType[*cri.StartError](err); known {
		return err
	}
	return &cri.StartError{Reason: cri.ReasonCreatePodSandbox, Message: err.Error(), Err: err}
}

func (b build) sandboxConfig(attempt uint32) (
	*runtimeapi.PodSandboxConfig, []cri.DNSProblem, error) {
	dns, problems := b.node.DNS.Config(b.pod)
	o := cri.SandboxOptions{
		Attempt:       attempt,
		LogsDir:       b.node.Logs.Dir,
		ClusterDomain: b.node.ClusterDomain,
		DNS:           dns,
		ExtraGroups:   b.node.Security.ExtraGroups,
		IDs:           b.node.Security.IDs,
		Resources:     b.resources.ResourceOptions,
		Sysctls:       b.node.Sysctls,
	}
	if b.cfg.Cgroups != nil {
		o.CgroupParent = b.cfg.Cgroups.PodParent(b.pod)
	}
	config, err := cri.SandboxConfig(b.pod, o)
	if err != nil {
		return nil, nil, err
	}
	text, err := handover.DescribePod(b.pod, b.held)
	if err != nil {
		return nil, nil, sandboxError(err)
	}
	if config.Annotations == nil {
		config.Annotations = map[string]string{}
	}
	config.Annotations[cri.AnnotationRoot] = b.node.Root
	if text := resize.Describe(b.pod); text != "" {
		config.Annotations[resize.Annotation] = text
	}
	delete(config.Annotations, handover.Annotation) // only the agent may write it
	if text != "" {
		config.Annotations[handover.Annotation] = text
	}
	return config, problems, nil
}
