package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/child"
	"github.com/numalet/numalet/internal/files"
)

const (
	// startTimeout bounds the time until containerd is ready.
	startTimeout = time.Minute
	// pollEvery is the interval at which conditions outside our process are polled.
	pollEvery = 20 * time.Millisecond
)

// Daemon is a running containerd. Its creator must stop it.
type Daemon struct {
	config      Config
	snapshotter string
	server      child.Server
}

// Start starts containerd and returns when it can run pods. It first removes what an earlier daemon
// left in the same directory. ctx covers the start only.
func Start(ctx context.Context, c Config) (*Daemon, error) {
	c = c.withDefaults()
	if err := errors.Join(c.checkDir(), c.Check()); err != nil {
		return nil, err
	}
	if err := Sweep(ctx, c); err != nil {
		return nil, fmt.Errorf("clean up %s: %w", c.Dir, err)
	}
	d := &Daemon{config: c, snapshotter: "native", server: child.Server{
		Program: filepath.Join(c.Binaries, "containerd"), Args: []string{"--config", c.path(configFile)},
		Env: []string{"PATH=" + c.Binaries + ":" + os.Getenv("PATH")}, Log: c.path(logFile),
		Outlives: true, // as its pods do, until Sweep
	}}
	if overlays(c.Dir) {
		d.snapshotter = "overlayfs"
	}
	if err := errors.Join(c.write(d.snapshotter), saveForward(c)); err != nil {
		return nil, errors.Join(fmt.Errorf("write containerd's configuration: %w", err),
			Sweep(ctx, c))
	}
	if err := d.server.Start(); err != nil {
		return nil, errors.Join(err, Sweep(ctx, c))
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := d.ready(ctx); err != nil {
		err = fmt.Errorf("%w; the end of its log:\n%s", err, files.Tail(d.LogFile(), 10))
		return nil, errors.Join(err, d.Stop(context.WithoutCancel(ctx)))
	}
	return d, nil
}

// ready waits until the runtime and its network report that they are ready.
func (d *Daemon) ready(ctx context.Context) error {
	conn, err := d.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	runtime := runtimeapi.NewRuntimeServiceClient(conn)
	state := "it does not answer"
	for {
		resp, err := runtime.Status(ctx, &runtimeapi.StatusRequest{})
		if err == nil {
			if state = notReady(resp); state == "" {
				return nil
			}
		}
		select {
		case <-d.server.Exited():
			return errors.New("containerd exited while starting")
		case <-ctx.Done():
			return fmt.Errorf("containerd is not ready: %s: %w", state, context.Cause(ctx))
		case <-time.After(pollEvery):
		}
	}
}

func notReady(resp *runtimeapi.StatusResponse) string {
	var not []string
	for _, c := range resp.GetStatus().GetConditions() {
		if !c.GetStatus() && strings.HasSuffix(c.GetType(), "Ready") {
			not = append(not, c.GetType()+" is false: "+c.GetMessage())
		}
	}
	return strings.Join(not, "; ")
}

func (d *Daemon) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient(d.Endpoint(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// Endpoint returns the URL of the CRI socket.
func (d *Daemon) Endpoint() string { return "unix://" + d.config.path(socketFile) }

// CDIDir returns the directory of CDI specs.
func (d *Daemon) CDIDir() string { return d.config.path("cdi") }

// NetworkFile returns the path of the pods' network configuration. If its directory holds several
// files, containerd takes the first by name.
func (d *Daemon) NetworkFile() string { return d.config.path(networkFile) }

// LogFile returns the path of the log, which Stop removes.
func (d *Daemon) LogFile() string { return d.config.path(logFile) }

// Exited returns a channel that is closed when containerd has exited, by itself or by Stop.
func (d *Daemon) Exited() <-chan struct{} { return d.server.Exited() }

// Import makes the images of an archive available to pods.
func (d *Daemon) Import(ctx context.Context, archive string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(d.config.Binaries, "ctr"),
		"--address", d.config.path(socketFile), "--namespace", "k8s.io",
		"images", "import", "--local", "--snapshotter", d.snapshotter, archive)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("import images from %s: %w: %s", archive, err, bytes.TrimSpace(out))
	}
	return nil
}

// UseRegistry redirects pulls from a registry's host name to url, which may be plain HTTP.
func (d *Daemon) UseRegistry(host, url string) error {
	dir := filepath.Join(d.config.path("hosts"), host)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("server = %[1]q\n\n[host.%[1]q]\n"+
		"  capabilities = [\"pull\", \"resolve\"]\n", url)
	return os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o644)
}

// Stop removes all pods, ends containerd and its processes, and removes all files that Start
// created. It can be called again, also after an error.
func (d *Daemon) Stop(ctx context.Context) error {
	podsErr := d.removePods(ctx)
	d.server.Stop()
	if err := Sweep(ctx, d.config); err != nil {
		return errors.Join(podsErr, err)
	}
	return nil // Sweep has removed what removePods could not
}

// Kill kills containerd itself, as a crash would, and returns when it has exited. Pods keep
// running, and Stop is still needed.
func (d *Daemon) Kill() { d.server.Kill() }

// Restart starts containerd again after it has exited, and returns when it can run pods. Earlier
// pods are still there. Nothing else may be called meanwhile; ctx covers the start only.
func (d *Daemon) Restart(ctx context.Context) error {
	if !await.On(ctx, d.server.Exited()) {
		return fmt.Errorf("wait for containerd to exit: %w", context.Cause(ctx))
	}
	if err := d.server.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return d.ready(ctx)
}

func (d *Daemon) removePods(ctx context.Context) error {
	conn, err := d.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	runtime := runtimeapi.NewRuntimeServiceClient(conn)
	pods, err := runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	var errs []error
	for _, p := range pods.Items {
		_, err := runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.Id})
		if err == nil {
			_, err = runtime.RemovePodSandbox(ctx,
				&runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.Id})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("remove sandbox %s: %w", p.Id, err))
		}
	}
	return errors.Join(errs...)
}

// overlays reports whether overlayfs works in dir. It does not work on top of another overlayfs.
func overlays(dir string) bool {
	test, err := os.MkdirTemp(dir, "overlay")
	if err != nil {
		return false
	}
	defer os.RemoveAll(test)
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if os.Mkdir(filepath.Join(test, name), 0o755) != nil {
			return false
		}
	}
	merged := filepath.Join(test, "merged")
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", test)
	if unix.Mount("overlay", merged, "overlay", 0, options) != nil {
		return false
	}
	return unix.Unmount(merged, unix.MNT_DETACH) == nil
}
