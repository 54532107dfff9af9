// Command numalet-gpu is a device plugin for NVIDIA GPUs, in a binary of its own because NVIDIA's
// library needs cgo. Built without, it has the GPUs of machines as data only.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/cmd/internal/cli"
	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/deviceplugin/gpu/dra"
	"github.com/numalet/numalet/deviceplugin/gpu/mock"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/version"
	"github.com/numalet/numalet/topology/discover"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	cmd := newCommand(os.Getenv)
	cli.AddManual(cmd)
	err := cli.CheckCommand(cmd, os.Args[1:])
	if err == nil {
		err = cmd.ExecuteContext(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "numalet-gpu:", err)
		os.Exit(1)
	}
}

// options are the flags beyond those of package gpu.
type options struct {
	mock, mockOrders string
	metrics          string
	readEvery        time.Duration
	printMachine     bool
	claims           *dra.Flags
	env              func(string) string
}

func newCommand(env func(string) string) *cobra.Command {
	var o options
	var flags *gpu.Flags
	cmd := &cobra.Command{
		Use:   "numalet-gpu",
		Short: "Device plugin for NVIDIA GPUs",
		Long: `Offer the node's NVIDIA GPUs, MIG devices, or shares of both to the kubelet or
numalet. Flags, environment variables and the configuration file are those of NVIDIA's plugin.

With --dra it offers them to resource claims instead, as a DRA driver.

With --mock it offers the GPUs of a machine as data, without a GPU or a driver. There
are ` + strings.Join(mock.Names(), ", ") + `. With --mock-orders,
numalet-gpu ctl has something happen to them.`,
		Example: `  numalet-gpu --mig-strategy mixed --pass-device-specs
  numalet-gpu --mock dgxh100 --kubelet-socket /tmp/plugins/kubelet.sock
  numalet-gpu --dra --dra-mig dynamic --kubeconfig /etc/kubernetes/gpu.conf`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true, Version: version.Get().String(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.claims.Check(cmd.Flags()); err != nil {
				return err
			}
			return run(cmd.Context(), flags, o, cmd.OutOrStdout())
		},
	}
	cmd.AddCommand(newCtlCommand())
	cmd.SetVersionTemplate("{{.Name}} {{.Version}}\n") // as numalet's
	f := cmd.Flags()
	flags = gpu.AddFlags(f, env)
	o.claims, o.env = dra.AddFlags(f), env
	f.StringVar(&o.mock, "mock", "", "offer the GPUs of this machine, a name or a YAML file")
	f.StringVar(&o.mockOrders, "mock-orders", "",
		"with --mock: listen on this unix socket for what is to happen, a line each:\n"+
			mock.Orders())
	f.StringVar(&o.metrics, "metrics-address", "",
		"serve /metrics and /healthz on this address (none)")
	f.DurationVar(&o.readEvery, "read-every", 10*time.Second,
		"how often the GPUs are read, 100ms at least; what the driver tells by itself arrives at once")
	f.BoolVar(&o.printMachine, "print-machine", false,
		"with --mock: print the machine for --topology-from, and end")
	return cmd
}

// run offers GPUs until ctx is done. SIGHUP has it begin anew with what the configuration file says
// now, unless that is wrong; with a driver that does not answer it ends instead.
func run(ctx context.Context, flags *gpu.Flags, o options, out io.Writer) error {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	defer signal.Stop(again)
	for {
		round, end := context.WithCancel(ctx)
		var listening sync.WaitGroup
		listening.Go(func() { renew(round, end, again, flags, out) })
		err := offer(round, flags, o, out)
		renewed := round.Err() != nil && ctx.Err() == nil
		end()
		listening.Wait()
		switch {
		case errors.Is(err, gpu.ErrAbandoned) && ctx.Err() != nil: // the process ends anyway
			return nil
		case err != nil || !renewed:
			return err
		}
	}
}

// renew ends a round when it is to begin anew and can.
func renew(round context.Context, end func(), again <-chan os.Signal, flags *gpu.Flags,
	out io.Writer) {
	for await.On(round, again) {
		if _, _, _, err := flags.Settings(); err != nil {
			fmt.Fprintf(out, "SIGHUP: everything stays as it was: %v\n", err)
			continue
		}
		fmt.Fprintln(out, "SIGHUP: beginning anew")
		end()
	}
}

// offer offers GPUs with the settings of the moment.
func offer(ctx context.Context, flags *gpu.Flags, o options, out io.Writer) error {
	settings, dir, unused, err := flags.Settings()
	if err != nil {
		return err
	}
	if o.readEvery < 100*time.Millisecond {
		return fmt.Errorf("--read-every %v: want 100ms at least", o.readEvery)
	}
	driver, rig, err := o.driver(settings.CDI.Files)
	if err != nil {
		return err
	}
	if o.printMachine {
		machine, err := rig.Machine().Topology()
		if err != nil {
			return err
		}
		return discover.WriteYAML(out, machine)
	}
	logger := log.New(out, "", log.LstdFlags)
	if len(unused) > 0 {
		logger.Printf("these have no effect: %s", strings.Join(unused, ", "))
	}
	registry := metrics.NewKubeRegistry()
	plugin, err := o.plugin(gpu.Config{Driver: driver, Settings: settings, Dir: dir,
		Registry: registry, Interval: o.readEvery, Log: logger.Printf})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return plugin.Run(ctx) })
	if o.metrics != "" {
		group.Go(func() error { return serveMetrics(ctx, o.metrics, registry) })
	}
	if o.mockOrders != "" {
		group.Go(func() error { return rig.Serve(ctx, o.mockOrders) })
	}
	return group.Wait()
}

// plugin returns the device plugin, or with --dra the driver of claims.
func (o options) plugin(cfg gpu.Config) (interface{ Run(context.Context) error }, error) {
	if !o.claims.On {
		return gpu.New(cfg)
	}
	claims, err := o.claims.Config(o.env)
	if err != nil {
		return nil, err
	}
	claims.Config = cfg
	return dra.New(claims)
}

// driver is the real one, or that of a machine as data.
func (o options) driver(files gpu.DriverFiles) (gpu.Driver, *mock.Rig, error) {
	if o.mock == "" {
		if o.printMachine || o.mockOrders != "" {
			return nil, nil, errors.New("--print-machine and --mock-orders are for --mock")
		}
		driver, err := realDriver(files)
		return nodeDriver{driver}, nil, err
	}
	machine, err := mock.Open(o.mock)
	if err != nil {
		return nil, nil, fmt.Errorf("--mock: %w", err)
	}
	rig := mock.New(machine)
	return rig, rig, nil
}

// nodeDriver is the driver of this node. Where there is none, its errors say what a user can do without one.
type nodeDriver struct{ gpu.Driver }

// Open opens a session with the driver.
func (d nodeDriver) Open() (gpu.Session, error) {
	session, err := d.Driver.Open()
	if errors.Is(err, gpu.ErrNoDriver) {
		err = fmt.Errorf("%w (on a node without GPUs --mock MACHINE, such as --mock dgxh100, offers those of a machine "+
			"that is data)", err)
	}
	return session, err
}

func serveMetrics(ctx context.Context, address string, registry metrics.KubeRegistry) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--metrics-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics.HandlerFor(registry, metrics.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
