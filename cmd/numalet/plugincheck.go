package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/numalet/numalet/deviceplugin/check"
	"github.com/numalet/numalet/internal/oneline"

	"github.com/numalet/numalet/cmd/internal/cli"
)

// pluginCheckFlags holds the flags of "numalet plugin check".
type pluginCheckFlags struct {
	cfg         check.Config
	machine     string
	levers      []string
	format, out string
	transcript  string
	log         string
	watch       []string
	long        bool
	strict      bool
	dra         draCheckFlags
}

func newPluginCheckCommand() *cobra.Command {
	f := &pluginCheckFlags{}
	cmd := &cobra.Command{
		Use:   "check --exec COMMAND",
		Short: "Check a device plugin: what a node does to it in months, in a few seconds",
		Long: `Put a device plugin through what happens to it on nodes: it registers, lists and
allocates under a real device manager in a directory of its own, the agent is
restarted at bad moments, calls are odd, many or cancelled, and in the end it is
stopped and killed. It takes no root, no cluster and no hardware, and a few seconds.

--exec starts the plugin, as a shell would; {dir} in it stands for the directory
with kubelet.sock, {registry} for the plugin registry. --dir checks one that runs
already in a directory that no kubelet serves; it is not stopped then.

What happens to hardware is up to you: --lever NAME=COMMAND runs a command when it
should happen. Without a lever its checks are not made.

  sicken    a healthy device becomes unhealthy
  cure      and healthy again
  vanish    a device goes
  return    and comes back
  multiply  there are 100,000 devices

--dra checks a driver of resource claims (DRA): by its name the one that --exec
starts, or by its name or its socket in the plugin registry one that runs. {dir} stands
for the directory of plugins' data, and {root} for the kubelet's root directory, where
that, the plugin registry and pod-resources are. Drivers ask the API server for claims:
name some that are allocated to the driver and that no pod uses with --claim. Each is
prepared, and unprepared in the end.

A plugin that registers several resources is checked with each of them. --only makes
some checks, by their names or those of groups, and what they need. --watch checks
again whenever a file changes, such as the plugin's executable.

The exit code is 0 when no check failed, 1 when one did, and 2 when the plugin could
not be checked, or nothing of its devices: without a healthy device, or for a driver
without a claim. Warnings are no failures, except with --strict.`,
		Example: `  numalet plugin check --exec "./my-plugin --dir {dir}"
  numalet plugin check --exec "env DIR={dir} ./my-plugin" -o junit --out check.xml
  numalet plugin check --exec "./my-plugin --dir {dir}" --only allocation --watch ./my-plugin
  numalet plugin check --dir /tmp/plugins --resource example.com/gpu --transcript calls.txt
  numalet plugin check --dra gpu.example.com --claim default/gpu/6e3b... --slices slices.yaml
  numalet plugin check --dra gpu.example.com --exec "./driver --plugins {dir} --registry {registry}"`,
		Args: cobra.NoArgs,
	}
	answers(cmd, "checks failed", func(cmd *cobra.Command) (bool, error) {
		if err := f.complete(); err != nil {
			return false, err
		}
		return again(cmd.Context(), f.watch, cmd.ErrOrStderr(), func() (bool, error) {
			return f.run(cmd.Context(), cmd.OutOrStdout())
		})
	})
	f.add(cmd.Flags())
	return cmd
}

func (f *pluginCheckFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.cfg.Command, "exec", "", "command that starts the plugin")
	flags.StringVar(&f.cfg.Dir, "dir", "", "device plugin directory of a plugin that runs already")
	flags.StringVar(&f.cfg.Resource, "resource", "",
		"resource to check, if several register (all of them)")
	flags.StringSliceVar(&f.cfg.Only, "only", nil,
		"checks to make, by their names or groups, besides those that they need (all)")
	flags.StringArrayVar(&f.watch, "watch", nil,
		"file or folder: check again whenever it changes, until interrupted; repeatable")
	flags.BoolVar(&f.strict, "strict", false, "count warnings as failures")
	flags.StringVar(&f.machine, "topology-from", "",
		"machine whose NUMA nodes devices may have: a snapshot, a YAML file or a fixture's "+
			"name (this one)")
	flags.StringArrayVar(&f.levers, "lever", nil,
		"command that makes the hardware change, NAME=COMMAND; repeatable")
	flags.DurationVar(&f.cfg.Patience, "patience", 10*time.Second,
		"how long the plugin may take for anything")
	cli.Choose(flags, &f.format, "output", "o", "how to print", "text", "json", "junit")
	flags.StringVar(&f.out, "out", "", "file for --output; text goes to the terminal beside it")
	flags.StringVar(&f.transcript, "transcript", "", "file for all gRPC messages")
	flags.StringVar(&f.log, "plugin-log", "", "file for what the plugin of --exec writes")
	f.dra.add(flags)
	flags.BoolVar(&f.long, "long", false, "say of checks that passed too what they did, and why")
}

// run runs the checks, prints the results, and reports whether no check failed.
func (f *pluginCheckFlags) run(ctx context.Context, stdout io.Writer) (good bool, err error) {
	files := &outFiles{}
	defer func() { err = errors.Join(err, files.close()) }()
	result, log, transcript := stdout, files.create(f.log), files.create(f.transcript)
	if f.out != "" {
		result = files.create(f.out)
	}
	if files.err != nil {
		return false, files.err
	}
	f.cfg.Output = log
	text := &check.Text{W: stdout, Width: cli.Width(stdout), Long: f.long}
	asText := f.format == "text" || f.out != ""
	var writeErr error // errors of writing text
	if asText {
		f.cfg.OnResult = func(r check.Result) { writeErr = errors.Join(writeErr, text.Result(r)) }
	}
	report, err := f.check(ctx)
	err = errors.Join(err, check.WriteTranscript(transcript, report.Transcript))
	if err != nil {
		return false, err
	}
	if asText {
		writeErr = errors.Join(writeErr, text.End(report))
	}
	if err := errors.Join(writeErr, f.write(result, stdout, report)); err != nil {
		return false, err
	}
	if why := report.Unchecked(); why != "" {
		return false, fmt.Errorf("%s was not checked: %s", f.subject(), why)
	}
	return report.Good() && !(f.strict && report.Count(check.Warning) > 0), nil
}

// subject names what could not be checked.
func (f *pluginCheckFlags) subject() string {
	if f.dra.driver != "" {
		return "what becomes of claims"
	}
	return "what becomes of devices"
}

func (f *pluginCheckFlags) check(ctx context.Context) (check.Report, error) {
	if f.dra.driver != "" {
		return f.dra.check(ctx, f.cfg)
	}
	return check.Run(ctx, f.cfg)
}

// write writes the report in the chosen format, unless that is text and is on stdout already.
func (f *pluginCheckFlags) write(to, stdout io.Writer, report check.Report) error {
	switch f.format {
	case "json":
		return cli.WriteJSON(to, report)
	case "junit":
		return check.WriteJUnit(to, report)
	}
	if to == stdout {
		return nil
	}
	text := &check.Text{W: to, Width: cli.NoTerminal, Long: f.long}
	for _, r := range report.Results {
		if err := text.Result(r); err != nil {
			return err
		}
	}
	return text.End(report)
}

// complete builds the configuration from the flags.
func (f *pluginCheckFlags) complete() error {
	if f.dra.driver != "" && (f.machine != "" || f.cfg.Resource != "" || len(f.levers) > 0) {
		return errors.New("--topology-from, --resource and --lever are for device plugins: leave " +
			"them out with --dra")
	}
	if err := f.dra.complete(f.cfg); err != nil || f.dra.driver != "" {
		return err
	}
	f.cfg.CDI = f.dra.cdi
	if f.cfg.Command == "" && f.cfg.Dir == "" {
		return errors.New("start the plugin with --exec COMMAND, or name the directory of one " +
			"that runs with --dir; numalet plugin check --help tells more")
	}
	if f.cfg.Command != "" && f.cfg.Dir != "" {
		return errors.New("--exec and --dir: use --exec to start a plugin in a directory of its " +
			"own, or --dir for one that runs")
	}
	machine, err := cli.OpenMachine(f.machine)
	if err != nil {
		return err
	}
	f.cfg.Nodes = machine.NodeSet()
	f.cfg.Levers = map[check.Lever]func(context.Context) error{}
	for _, given := range f.levers {
		name, command, found := strings.Cut(given, "=")
		lever := check.Lever(name)
		if !found || !slices.Contains(check.Levers(), lever) {
			return fmt.Errorf("--lever %q: write NAME=COMMAND, where NAME is one of %v", given,
				check.Levers())
		}
		f.cfg.Levers[lever] = func(ctx context.Context) error { return pullLever(ctx, command) }
	}
	return nil
}

// pullLever runs a command. Its error contains the command's output.
func pullLever(ctx context.Context, command string) error {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, oneline.Of(string(out)))
	}
	return nil
}

// outFiles holds the files that a command writes, and the errors of creating them.
type outFiles struct {
	all []*os.File
	err error
}

// create returns a writer to a new file; without a path nothing is written.
func (o *outFiles) create(path string) io.Writer {
	if path == "" {
		return io.Discard
	}
	f, err := os.Create(path)
	if err != nil {
		o.err = errors.Join(o.err, err)
		return io.Discard
	}
	o.all = append(o.all, f)
	return f
}

func (o *outFiles) close() error {
	var err error
	for _, f := range o.all {
		err = errors.Join(err, f.Close())
	}
	return err
}
