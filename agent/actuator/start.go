package actuator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/volume"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// createSandbox makes cgroup, volumes and log directory, then the sandbox.
func (a *Actuator) createSandbox(ctx context.Context, pod *v1.Pod, attempt uint32) error {
	if a.cfg.Cgroups != nil {
		if err := a.cfg.Cgroups.EnsurePod(ctx, pod, a.cfg.Node.PodCgroup(pod)); err != nil {
			a.cfg.Event(pod, v1.EventTypeWarning, "FailedCreatePodContainer",
				fmt.Sprintf("unable to ensure pod container exists: %v", err))
			return sandboxError(err)
		}
	}
	if err := a.cfg.Volumes.SetUp(ctx, pod); err != nil {
		a.cfg.Event(pod, v1.EventTypeWarning, "FailedMount", err.Error())
		return sandboxError(err)
	}
	if err := os.MkdirAll(cri.PodLogDir(a.cfg.Node.LogsDir, pod), 0o755); err != nil {
		return sandboxError(err)
	}
	config, err := a.sandboxConfig(pod, attempt)
	if err != nil {
		return err
	}
	if _, err := a.cfg.Runtime.RunPodSandbox(ctx, config, ""); err != nil {
		a.cfg.Event(pod, v1.EventTypeWarning, "FailedCreatePodSandBox",
			fmt.Sprintf("Failed to create pod sandbox: %v", err))
		return sandboxError(err)
	}
	return nil
}

func sandboxError(err error) error {
	return &cri.StartError{Reason: cri.ReasonCreatePodSandbox, Message: err.Error(), Err: err}
}

func (a *Actuator) sandboxConfig(pod *v1.Pod,
	attempt uint32) (*runtimeapi.PodSandboxConfig, error) {
	node := a.node()
	o := cri.SandboxOptions{
		Attempt:       attempt,
		LogsDir:       node.LogsDir,
		ClusterDomain: node.ClusterDomain,
		DNS:           node.DNS.Config(pod),
		ExtraGroups:   node.Security.ExtraGroups,
		Resources:     node.Resources,
	}
	if a.cfg.Cgroups != nil {
		o.CgroupParent = a.cfg.Cgroups.PodParent(pod)
	}
	config, err := cri.SandboxConfig(pod, o)
	if err != nil {
		return nil, err
	}
	text, err := allocation.DescribePod(pod, a.cfg.State().Pods[pod.UID])
	if err != nil {
		return nil, sandboxError(err)
	}
	delete(config.Annotations, allocation.Annotation) // the pod's own words are not ours
	if text != "" {
		if config.Annotations == nil {
			config.Annotations = map[string]string{}
		}
		config.Annotations[allocation.Annotation] = text
	}
	return config, nil
}

// startContainer creates and starts one container in the newest sandbox.
func (a *Actuator) startContainer(ctx context.Context, pod *v1.Pod, observed cri.Pod,
	act podworker.Action) error {
	c, _ := podspec.Find(pod, act.Container)
	if c == nil || len(observed.Sandboxes) == 0 {
		return fmt.Errorf("start container %s: pod %s has no such container, or no sandbox",
			act.Container, pod.UID)
	}
	sandbox := observed.Sandboxes[0]
	sandboxConfig, err := a.sandboxConfig(pod, sandbox.Attempt)
	if err != nil {
		return err
	}
	image, err := a.cfg.Images.Ensure(ctx, cri.ImageRequest{
		Pod: pod, Container: c, Sandbox: sandboxConfig,
		Report: func(eventType, reason, message string) {
			a.cfg.Event(pod, eventType, reason, message)
		},
	})
	if err != nil {
		return err
	}
	node := a.node()
	options := cri.ContainerOptions{
		Attempt: act.Attempt, Image: image,
		Facts: node.Facts, Resources: node.Resources, Security: node.Security,
	}
	options.Facts.PodIPs = sandbox.IPs
	if options.Devices, err = a.devices(ctx, pod, c); err != nil {
		return cri.ConfigError(err)
	}
	if options.Mounts, err = a.mounts(pod, c, options); err != nil {
		return err
	}
	if a.cfg.Pool != nil {
		place, leave, err := a.cfg.Pool.Enter(ctx, pod.UID, c.Name)
		if err != nil {
			return &cri.StartError{Reason: cri.ReasonPreStartHook, Message: err.Error(), Err: err}
		}
		defer leave()
		options.Placement = place
	}
	held := a.cfg.State().Pods[pod.UID].Containers[c.Name]
	options.Placement.Mems = a.cfg.Hardware().MemoryNodes(held.Memory).String()
	config, err := a.containerConfig(pod, c, options)
	if err != nil {
		return err
	}
	id, err := a.create(ctx, pod, sandbox.ID, config, sandboxConfig)
	if err != nil {
		a.cfg.Event(pod, v1.EventTypeWarning, "Failed", "Error: "+err.Error())
		return &cri.StartError{Reason: cri.ReasonCreateContainer, Message: err.Error(), Err: err}
	}
	a.cfg.Event(pod, v1.EventTypeNormal, "Created", "Container created")
	if err := a.cfg.Runtime.StartContainer(ctx, id); err != nil {
		a.cfg.Event(pod, v1.EventTypeWarning, "Failed", "Error: "+err.Error())
		return &cri.StartError{Reason: cri.ReasonRunContainer, Message: err.Error(), Err: err}
	}
	a.cfg.Event(pod, v1.EventTypeNormal, "Started", "Container started")
	return nil
}

// create makes the container with a place for its log and, where log collectors look for one, a
// link to it.
func (a *Actuator) create(ctx context.Context, pod *v1.Pod, sandboxID string,
	config *runtimeapi.ContainerConfig,
	sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	log := filepath.Join(sandboxConfig.LogDirectory, config.LogPath)
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return "", err
	}
	id, err := a.cfg.Runtime.CreateContainer(ctx, sandboxID, config, sandboxConfig)
	if err != nil || a.cfg.Node.LogLinks == "" {
		return id, err
	}
	link := filepath.Join(a.cfg.Node.LogLinks, cri.LegacyLogName(pod, config.Metadata.Name, id))
	if err := os.Symlink(log, link); err != nil {
		klog.FromContext(ctx).Info("A log has no link", "link", link, "err", err)
	}
	return id, nil
}

// containerConfig is the container's order with what it holds written on it.
func (a *Actuator) containerConfig(pod *v1.Pod, c *v1.Container, o cri.ContainerOptions) (
	*runtimeapi.ContainerConfig, error) {
	config, err := cri.ContainerConfig(pod, c, o)
	if err != nil {
		return nil, err
	}
	held := a.cfg.State().Pods[pod.UID].Containers[c.Name]
	text, err := allocation.Describe(c.Name, held)
	if err != nil {
		return nil, cri.ConfigError(err)
	}
	if text != "" {
		config.Annotations[allocation.Annotation] = text
	}
	return config, nil
}

// mounts prepares the container's volumes; subPathExpr may refer to its environment.
func (a *Actuator) mounts(pod *v1.Pod, c *v1.Container, o cri.ContainerOptions) (
	[]*runtimeapi.Mount, error) {
	env, err := cri.Env(pod, c, o.Facts, o.Devices)
	if err != nil {
		return nil, err
	}
	mounts, err := a.cfg.Volumes.Mounts(pod, c, volume.Start{
		Attempt: o.Attempt, Env: env, PodIPs: o.Facts.PodIPs,
	})
	if err != nil {
		return nil, cri.ConfigError(err)
	}
	return mounts, nil
}
