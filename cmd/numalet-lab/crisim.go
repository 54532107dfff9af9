package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"

	"github.com/numalet/numalet/cmd/internal/cli"
)

const criSimHelp = `Serve CRI v1 from memory: sandboxes and containers that run nothing.

Containers run until they are stopped. The pod annotation sim.numalet.io/<container> scripts
another behaviour, for example "exit=1 after=2s", "exit=3 attempts=2" or "term=ignore";
commands made of sleep, exit, true, false and echo are obeyed. Every image can be pulled,
except those named missing.

With --control the runtime can be inspected and disturbed while it runs:

  curl --unix-socket /run/sim.ctl http://sim/state
  curl --unix-socket /run/sim.ctl http://sim/journal
  curl --unix-socket /run/sim.ctl http://sim/faults \
    -d '{"method": "StartContainer", "error": "no space left", "count": 1}'
  curl --unix-socket /run/sim.ctl -X DELETE http://sim/faults
  curl --unix-socket /run/sim.ctl http://sim/exit -d '{"container": "pod/container", "code": 1}'
  curl --unix-socket /run/sim.ctl http://sim/events -d '{"mode": "unimplemented"}'
  curl --unix-socket /run/sim.ctl http://sim/ready -d '{"runtime": false, "network": true}'`

// newCRISimCommand returns "numalet cri" with its subcommand sim.
func newCRISimCommand() *cobra.Command {
	return cli.Group("cri", cli.LabShort["cri"],
		newCRISim())
}

func newCRISim() *cobra.Command {
	var (
		cfg    crisim.Config
		delays []string
	)
	cmd := &cobra.Command{
		Use:   "sim --listen unix:///path",
		Short: "Serve CRI from memory: sandboxes and containers that run nothing",
		Long:  criSimHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.Delays, err = parseDelays(delays); err != nil {
				return err
			}
			server, err := crisim.New(cfg)
			if err != nil {
				return err
			}
			cmd.Printf("serving CRI on %s\n", server.Endpoint())
			return server.Run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&cfg.Listen, "listen", "", "where to serve CRI, unix:///path")
	flags.StringVar(&cfg.Control, "control", "", "path of the control socket; empty is none")
	flags.StringVar(&cfg.CgroupDriver, "cgroup-driver", "cgroupfs",
		"what RuntimeConfig answers: cgroupfs, systemd, or none for a runtime without it")
	flags.StringSliceVar(&delays, "delay", nil,
		"how long calls take: a duration for every call that changes something, "+
			"or METHOD=DURATION; may be repeated")
	flags.StringSliceVar(&cfg.Images, "image", nil, "images that are there from the start")
	flags.StringSliceVar(&cfg.Missing, "missing", nil,
		"patterns of image names that cannot be pulled")
	flags.StringSliceVar(&cfg.CDIDirs, "cdi-dir", nil,
		"directories with specs of CDI devices (default /etc/cdi and /var/run/cdi)")
	return cmd
}

// parseDelays reads entries like "10ms", which holds for all methods, and "RunPodSandbox=150ms".
func parseDelays(list []string) (map[string]time.Duration, error) {
	out := map[string]time.Duration{}
	for _, entry := range list {
		method, text, found := strings.Cut(entry, "=")
		if !found {
			method, text = "*", entry
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("--delay %q: use 10ms or RunPodSandbox=150ms: %w", entry, err)
		}
		out[method] = d
	}
	return out, nil
}
