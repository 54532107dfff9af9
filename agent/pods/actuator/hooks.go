package actuator

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/node/addresses"
	"github.com/numalet/numalet/agent/pods/handler"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// postStart runs the hook of a container that was just started. The error goes to the pod's status;
// the event, which more people can read, only says that the hook failed.
func (a *Actuator) postStart(ctx context.Context, pod *v1.Pod, observed cri.Pod,
	act podworker.Action) error {
	c, _ := podspec.Find(pod, act.Container)
	if c != nil && c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		target := handler.Target{Pod: pod, Container: c, ID: act.IDs[0],
			IP: a.address(pod, observed)}
		if err := a.hook(ctx, pod, c.Lifecycle.PostStart, target); err != nil {
			if ctx.Err() == nil {
				a.cfg.Tell.Container(podspec.Ref{Pod: pod, Container: act.Container},
					v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
			}
			return &cri.StartError{
				Reason: cri.ReasonPostStartHook, Message: err.Error(), Err: err,
			}
		}
	}
	return a.cfg.Volumes.Records.HookDone(pod.UID, act.Container)
}

// preStop runs the hook of a container that is about to be stopped. It returns when the hook is
// done, at end at the latest: a hook that takes longer may go on while its container lives. The
// caller calls ended when the container has ended; it ends the hook and waits for it.
func (a *Actuator) preStop(ctx context.Context, pod *v1.Pod, observed cri.Pod, id string,
	end time.Time) (ended func()) {
	c, _ := observed.ContainerOf(id)
	spec, hook := cri.PreStop(pod, c)
	if hook == nil {
		return func() {}
	}
	target := handler.Target{Pod: pod, Container: spec, ID: id, IP: a.address(pod, observed)}
	running, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.hook(running, pod, hook, target); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("A preStop hook did not succeed",
				"containerName", c.Name, "err", err)
			a.cfg.Tell.Container(podspec.Ref{Pod: pod, Container: c.Name},
				v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
		}
	}()
	within, late := context.WithDeadline(ctx, end)
	defer late()
	await.On(within, done)
	return func() {
		cancel()
		<-done
	}
}

// hook runs a hook, and makes an event if its HTTPS server answered only without TLS.
func (a *Actuator) hook(ctx context.Context, pod *v1.Pod, hook *v1.LifecycleHandler,
	t handler.Target) error {
	fallback, err := a.hooks.Run(ctx, hook, t)
	a.cfg.Tell.Hooked(fallback != "", err)
	if fallback != "" {
		a.cfg.Tell.Event(pod, v1.EventTypeWarning, "LifecycleHTTPFallback",
			"request to HTTPS lifecycle hook "+fallback+
				" got HTTP response, retry with HTTP succeeded")
	}
	return err
}

// address returns the IP address of the pod's containers; "" if there is none.
func (a *Actuator) address(pod *v1.Pod, observed cri.Pod) string {
	ips := a.cfg.Node.Network.IPs()
	if !pod.Spec.HostNetwork && len(observed.Sandboxes) > 0 {
		ips = addresses.OfPod(observed.Sandboxes[0].IPs, ips)
	}
	if len(ips) == 0 {
		return ""
	}
	return ips[0]
}
