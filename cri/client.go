// Package cri talks to the container runtime: it reads pods, builds the configurations of sandboxes
// and containers, and pulls images.
package cri

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/component-base/metrics"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criclient "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/numalet/numalet/internal/oneline"
)

// ErrNoRuntimeConfig reports that the runtime does not implement RuntimeConfig and so cannot tell
// its cgroup driver; the caller falls back to its own configuration.
var ErrNoRuntimeConfig = errors.New("runtime does not tell its cgroup driver")

const (
	// apiVersion is the version that the kubelet sends in a Version call and expects in the answer.
	apiVersion = "0.1.0"
	// defaultTimeout is the default of runtimeRequestTimeout.
	defaultTimeout = 2 * time.Minute
)

// Config holds the addresses of a runtime and the options of its calls.
type Config struct {
	// RuntimeEndpoint is the URL of a unix socket, "unix:///run/containerd/containerd.sock".
	RuntimeEndpoint string
	// ImageEndpoint serves the image service; empty means RuntimeEndpoint.
	ImageEndpoint string
	// Foreign reports whether a sandbox with these annotations belongs to another agent; its pods are
	// not listed. If nil, all sandboxes are ours. It is called often and must not block.
	Foreign func(annotations map[string]string) bool
	// Timeout bounds one call; zero means two minutes. Image pulls and event streams have none.
	Timeout time.Duration
	// Registry takes the metrics of the calls; if nil, they are not counted.
	Registry metrics.KubeRegistry
	// Tracer makes a span of each call and hands its context on to the runtime; if nil, neither.
	Tracer trace.TracerProvider
	// Streaming lists with streams, which have no bound on their size, where the runtime can
	// (KEP-5825).
	Streaming bool
}

// Client is a connection to a CRI v1 runtime. It reconnects by itself when the runtime restarts.
// It is safe for concurrent use and holds no lock across a call.
type Client struct {
	runtime internalapi.RuntimeService
	images  internalapi.ImageManagerService
	metrics *measures
	foreign func(annotations map[string]string) bool
}

// Connect asks both endpoints one question. A wrong address or a runtime without CRI v1 is thus an
// error now and not at the first pod.
func Connect(ctx context.Context, cfg Config) (*Client, error) {
	if cfg.RuntimeEndpoint == "" {
		return nil, errors.New("no container runtime endpoint: " +
			"set containerRuntimeEndpoint, for example unix:///run/containerd/containerd.sock")
	}
	m := newMeasures()
	if err := m.Register(cfg.Registry); err != nil {
		return nil, err
	}
	imageEndpoint := cmp.Or(cfg.ImageEndpoint, cfg.RuntimeEndpoint)
	timeout := cmp.Or(cfg.Timeout, defaultTimeout)

	runtime, err := criclient.NewRemoteRuntimeServiceBuilder().
		WithEndpoint(cfg.RuntimeEndpoint).WithConnectionTimeout(timeout).
		WithTracerProvider(cfg.Tracer).WithUseStreaming(cfg.Streaming).Build(quiet(ctx))
	if err != nil {
		return nil, connectError("runtime", cfg.RuntimeEndpoint, err)
	}
	images, err := criclient.NewRemoteImageServiceBuilder().
		WithEndpoint(imageEndpoint).WithConnectionTimeout(timeout).
		WithTracerProvider(cfg.Tracer).WithUseStreaming(cfg.Streaming).Build(quiet(ctx))
	if err != nil {
		return nil, errors.Join(
			connectError("image service", imageEndpoint, err), runtime.Close(quiet(ctx)))
	}
	return &Client{
		runtime: measuredRuntime{runtime, m}, images: measuredImages{images, m},
		metrics: m, foreign: cfg.Foreign,
	}, nil
}

// connectError adds the next step to the error.
func connectError(what, endpoint string, err error) error {
	next := "is it a URL such as unix:///run/containerd/containerd.sock?"
	switch status.Code(err) {
	case codes.Unavailable:
		next = "is the runtime running and listening there?"
	case codes.Unimplemented:
		next = "it does not serve CRI v1; use containerd 2.x or CRI-O 1.26 or newer, " +
			"with its CRI plugin enabled"
	case codes.DeadlineExceeded:
		next = "it accepts connections but does not answer; look at the runtime's log"
	}
	return fmt.Errorf("connect %s %s: %w (%s)", what, endpoint, err, next)
}

// Close ends the connections; calls in flight fail.
func (c *Client) Close() error {
	ctx := quiet(context.Background())
	return errors.Join(c.runtime.Close(ctx), c.images.Close(ctx))
}

// Runtime returns the runtime service, for callers that change something in the runtime.
func (c *Client) Runtime() internalapi.RuntimeService { return c.runtime }

// Images returns the image service.
func (c *Client) Images() internalapi.ImageManagerService { return c.images }

// CgroupDriver returns the runtime's cgroup driver, "systemd" or "cgroupfs" (KEP-4033). The error
// is ErrNoRuntimeConfig if the runtime does not tell.
func (c *Client) CgroupDriver(ctx context.Context) (string, error) {
	resp, err := c.runtime.RuntimeConfig(quiet(ctx))
	if status.Code(err) == codes.Unimplemented {
		c.metrics.losing.WithLabelValues(losesAt).Set(1)
		return "", ErrNoRuntimeConfig
	}
	if err != nil {
		return "", fmt.Errorf("ask runtime for its cgroup driver: %w", err)
	}
	if resp.GetLinux() == nil {
		return "", ErrNoRuntimeConfig
	}
	return strings.ToLower(resp.GetLinux().GetCgroupDriver().String()), nil
}

// Condition is one of the runtime's own conditions.
type Condition struct {
	OK              bool
	Reason, Message string
}

// RuntimeHandler lists the features of a handler (the target of a RuntimeClass). The default
// handler has an empty name.
type RuntimeHandler struct {
	Name                    string
	RecursiveReadOnlyMounts bool
	UserNamespaces          bool
}

// RuntimeStatus holds the runtime's name and version, and whether it is ready for pods.
type RuntimeStatus struct {
	Name, Version, APIVersion string
	// Ready and Network hold the conditions RuntimeReady and NetworkReady.
	Ready, Network Condition
	Handlers       []RuntimeHandler
	// SupplementalGroupsPolicy reports whether the runtime implements KEP-3619.
	SupplementalGroupsPolicy bool
	// MountOptions reports whether the runtime applies noexec, nodev and nosuid to a container's mounts.
	MountOptions bool
	// UsersOnHostNetwork reports whether the runtime gives pods on the host's network a user namespace.
	UsersOnHostNetwork bool
}

// Status asks the runtime for its version and conditions. A condition that the runtime does not
// report is not OK.
func (c *Client) Status(ctx context.Context) (RuntimeStatus, error) {
	ctx = quiet(ctx)
	version, err := c.runtime.Version(ctx, apiVersion)
	if err != nil {
		return RuntimeStatus{}, fmt.Errorf("ask runtime version: %w", err)
	}
	resp, err := c.runtime.Status(ctx, false)
	if err != nil {
		return RuntimeStatus{}, fmt.Errorf("ask runtime status: %w", err)
	}
	out := RuntimeStatus{
		Name:                     version.RuntimeName,
		Version:                  version.RuntimeVersion,
		APIVersion:               version.RuntimeApiVersion,
		Ready:                    condition(resp.GetStatus(), runtimeapi.RuntimeReady),
		Network:                  condition(resp.GetStatus(), runtimeapi.NetworkReady),
		SupplementalGroupsPolicy: resp.GetFeatures().GetSupplementalGroupsPolicy(),
		MountOptions:             resp.GetFeatures().GetMountOptions(),
		UsersOnHostNetwork:       resp.GetFeatures().GetUserNamespacesHostNetwork(),
	}
	for _, h := range resp.GetRuntimeHandlers() {
		out.Handlers = append(out.Handlers, RuntimeHandler{
			Name:                    h.GetName(),
			RecursiveReadOnlyMounts: h.GetFeatures().GetRecursiveReadOnlyMounts(),
			UserNamespaces:          h.GetFeatures().GetUserNamespaces(),
		})
	}
	return out, nil
}

// maxInfo bounds what the runtime tells of its configuration, in bytes.
const maxInfo = 1 << 20

// CDIDirs returns the directories in which the runtime looks for CDI specs: those that it tells of in
// its configuration, as containerd does, or else CDI's default ones.
func (c *Client) CDIDirs(ctx context.Context) ([]string, error) {
	resp, err := c.runtime.Status(quiet(ctx), true)
	if err != nil {
		return nil, fmt.Errorf("ask runtime status: %w", err)
	}
	return ParseCDIDirs(resp.GetInfo()["config"]), nil
}

// ParseCDIDirs returns the directories of CDI specs in a runtime's configuration, which is JSON.
func ParseCDIDirs(config string) []string {
	var known struct {
		Dirs []string `json:"cdiSpecDirs"`
	}
	if len(config) > maxInfo || json.Unmarshal([]byte(config), &known) != nil || len(known.Dirs) == 0 {
		return cdi.DefaultSpecDirs
	}
	return known.Dirs
}

func condition(st *runtimeapi.RuntimeStatus, kind string) Condition {
	for _, c := range st.GetConditions() {
		if c.GetType() == kind {
			return Condition{OK: c.GetStatus(), Reason: oneline.Of(c.GetReason()),
				Message: oneline.Of(c.GetMessage())}
		}
	}
	return Condition{Reason: "NotReported", Message: "runtime does not report " + kind}
}

// quiet keeps cri-client from logging the errors that we return.
func quiet(ctx context.Context) context.Context {
	return klog.NewContext(ctx, klog.New(nil))
}
