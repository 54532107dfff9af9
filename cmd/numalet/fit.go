package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/placement/fit"
	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/internal/strictyaml"
	"github.com/numalet/numalet/internal/terminal"

	"github.com/numalet/numalet/cmd/internal/ask"
	"github.com/numalet/numalet/cmd/internal/cli"
)

// Exit codes of commands that answer a question: the answer is no, or there is no answer.
const (
	exitNo    = 1
	exitError = 2
)

// answers makes the command end with exitNo if ask answers no, and with exitError if ask fails.
func answers(cmd *cobra.Command, no string, ask func(*cobra.Command) (yes bool, err error)) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return cli.NewExit(cli.SuggestFlag(cmd, err), exitError)
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch yes, err := ask(cmd); {
		case err != nil:
			return cli.NewExit(err, exitError)
		case !yes:
			end := cli.NewExit(errors.New(no), exitNo)
			end.Quiet = true
			return end
		}
		return nil
	}
}

// fitFlags holds the flags of "numalet fit" besides the agent's.
type fitFlags struct {
	files  []string
	server ask.Agent
	count  string
	format string

	askPlugins bool
	devices    []string
	state      string
}

// newFitCommand returns "numalet fit -f POD".
func newFitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fit -f FILE",
		Short: "Say whether pods would be admitted or resized, where, and how many would fit",
		Long: `Decide on pods as the agent would, and run none. With --server, --node, --root-dir
or $NUMALET_SERVER a running agent answers from what is on its node now. Without,
or with flags of an agent, the answer is for an empty node: this machine, or the one
of --topology-from, under the KubeletConfiguration of --config or the defaults, with
the devices of --devices. --state adds the pods of an agent's numalet_state.

A file holds Pods, Lists of them or workloads, whose pod template counts once, and
the ResourceClaims of the pods and the ResourceSlices of their devices.
Pods are placed in order, each beside those before it that fit. The agent's other
flags are taken too, such as --cpu-manager-policy.

A pod of the API server that the asked node runs already, by its namespace and
name, is asked about as a resize to the requests and limits of the file: whether
it would be done, deferred or infeasible. With --count it stands for other pods.

The exit code is 0 when all fit, 1 when not, 2 when there is no answer.`,
		Example: "  numalet fit -f pod.yaml --server 127.0.0.1:10255\n" +
			"  numalet fit -f pod.yaml --count max --config /var/lib/kubelet/config.yaml\n" +
			"  numalet fit -f pod.yaml --topology-from fixture:epyc-nps4 --reserved-cpus 0 \\\n" +
			"    --cpu-manager-policy static --topology-manager-policy single-numa-node \\\n" +
			"    --devices example.com/gpu=8@0-3",
	}
	var f fitFlags
	agentFlags := config.AddFlags(cmd.Flags())
	shown := []string{
		"config", "config-dir", "topology-from", "cpu-manager-policy", "topology-manager-policy",
		"topology-manager-scope", "reserved-cpus",
	}
	var own []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		own = append(own, flag.Name)
		flag.Hidden = flag.Hidden || !slices.Contains(shown, flag.Name)
		// deprecated are only the agent's flags; a question that is asked once may use them
		flag.Deprecated = ""
	})
	f.add(cmd.Flags())
	answers(cmd, "not all fit", func(cmd *cobra.Command) (bool, error) {
		return f.run(cmd, agentFlags, own)
	})
	return cmd
}

func (f *fitFlags) add(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&f.files, "filename", "f", nil,
		"a file with pods, - for standard input; may be repeated")
	f.server.Add(flags)
	flags.StringVar(&f.count, "count", "", "copies of all the pods, or max for as many as fit")
	cli.Choose(flags, &f.format, "output", "o", "how to print", "text", "json")
	flags.BoolVar(&f.askPlugins, "ask-plugins", false,
		"with an agent, ask its device plugins which devices they prefer, as admission does")
	flags.StringArrayVar(&f.devices, "devices", nil, "without an agent, devices that there are: "+
		"RESOURCE=N, RESOURCE=N@NODES to spread them over NUMA nodes, or a file; may be repeated")
	flags.StringVar(&f.state, "state", "",
		"without an agent, a numalet_state with the pods that run already")
}

// run prints the answer and reports whether all pods fit. The flags that are named configure the
// agent, and have no meaning for one that already runs.
func (f *fitFlags) run(cmd *cobra.Command, agentFlags *config.Flags, named []string) (bool, error) {
	if cmd.Flags().NArg() > 0 || len(f.files) == 0 {
		return false,
			errors.New("name the file with the pods with -f; numalet fit --help tells more")
	}
	if err := f.check(cmd.Flags(), named); err != nil {
		return false, err
	}
	pods, err := f.manifests(cmd.InOrStdin())
	if err != nil {
		return false, err
	}
	var answer fit.Answer
	if f.asks(cmd.Flags(), named) {
		answer, err = f.ask(cmd.Context(), pods)
	} else {
		answer, err = f.place(cmd, pods, agentFlags)
	}
	if err != nil {
		return false, err
	}
	if f.format == "json" {
		return answer.Fits, cli.WriteJSON(cmd.OutOrStdout(), answer)
	}
	out := cmd.OutOrStdout()
	_, err = io.WriteString(out, terminal.Wrap(answer.Text(), cli.Width(out)))
	return answer.Fits, err
}

// check refuses flags that do not go together.
func (f *fitFlags) check(flags *pflag.FlagSet, agentFlags []string) error {
	if _, err := fit.ParseCount(f.count); err != nil {
		return fmt.Errorf("--%w", err)
	}
	if !f.asks(flags, agentFlags) {
		if f.askPlugins {
			return errors.New("--ask-plugins: there are plugins to ask with --server or --node only")
		}
		return nil
	}
	if name := ofAnEmptyNode(flags, agentFlags); name != "" {
		return fmt.Errorf("--%s: the agent that is asked has its own; leave one of the two out", name)
	}
	return nil
}

// asks reports whether an agent is asked: one that a flag names, or the one of the environment unless flags describe an
// empty node.
func (f *fitFlags) asks(flags *pflag.FlagSet, agentFlags []string) bool {
	return f.server.Named() || f.server.NamedAnyhow() && ofAnEmptyNode(flags, agentFlags) == ""
}

// ofAnEmptyNode returns a flag that the user has given and that only describes a node without an agent; "": there is
// none.
func ofAnEmptyNode(flags *pflag.FlagSet, agentFlags []string) string {
	for _, name := range append([]string{"devices", "state"}, agentFlags...) {
		if flags.Changed(name) && !slices.Contains(ask.Flags(), name) {
			return name
		}
	}
	return ""
}

// manifests joins the files to one YAML stream. An error about what is no YAML names the file.
func (f *fitFlags) manifests(stdin io.Reader) ([]byte, error) {
	var all [][]byte
	for _, name := range f.files {
		var raw []byte
		var err error
		if name == "-" {
			raw, err = io.ReadAll(stdin)
		} else {
			raw, err = os.ReadFile(name)
		}
		if err != nil {
			return nil, fmt.Errorf("read pods: %w; -f wants a file with pods, or - for standard "+
				"input", err)
		}
		if err := readable(raw); err != nil {
			return nil, fmt.Errorf("%s %w", name, err)
		}
		all = append(all, raw)
	}
	return bytes.Join(all, []byte("\n---\n")), nil
}

// readable returns why a file is no YAML: "is not ...".
func readable(raw []byte) error {
	docs, err := strictyaml.Split(raw)
	for _, doc := range docs {
		if _, wrong := strictyaml.Parse(doc); err == nil {
			err = wrong
		}
	}
	return err
}

// place answers without an agent.
func (f *fitFlags) place(cmd *cobra.Command, text []byte, agentFlags *config.Flags) (
	fit.Answer, error) {
	cfg, err := config.Load(cmd.Flags(), agentFlags)
	if err != nil {
		return fit.Answer{}, err
	}
	read, err := manifest.Read(text, cfg.RefuseUnknownFields, cfg.Enabled)
	if err != nil {
		return fit.Answer{}, err
	}
	snapshot, err := f.offline(cfg)
	if err != nil {
		return fit.Answer{}, err
	}
	question, err := fit.ParseCount(f.count)
	if err != nil {
		return fit.Answer{}, err
	}
	question.Pods = read.Pods
	question.Claims = fit.NewClaims(read, cfg.Placement.Attributes(),
		snapshot.View.Hardware.Machine, nil)
	answer, err := fit.Place(cmd.Context(), snapshot, question)
	if err != nil {
		return answer, err
	}
	answer.Warnings = read.Warnings
	for _, p := range answer.Pods {
		decided := p.Record.Verdict
		if decided.Outcome == string(decide.Wait) &&
			decided.Reason == decide.ReasonWaitPlugin {
			answer.Warnings = append(answer.Warnings,
				"no agent was asked, so that there are no devices but those of --devices, such "+
					"as --devices "+p.Blocked()+"=4")
			break
		}
	}
	return answer, nil
}

// offline returns a node with the configuration and the devices and pods of --devices and --state.
func (f *fitFlags) offline(cfg *config.Config) (decide.Snapshot, error) {
	inventory, err := readDevices(f.devices)
	if err != nil {
		return decide.Snapshot{}, err
	}
	var state allocation.State
	if f.state != "" {
		if state, err = store.ReadState(f.state); err != nil {
			return decide.Snapshot{}, fmt.Errorf("--state: %w; it is numalet_state below "+
				"an agent's --root-dir", err)
		}
	}
	return placement.Offline(cfg, inventory, state)
}

// ask has the agent answer.
func (f *fitFlags) ask(ctx context.Context, manifest []byte) (fit.Answer, error) {
	options := url.Values{}
	if f.count != "" {
		options.Set("count", f.count)
	}
	if f.askPlugins {
		options.Set("ask-plugins", "true")
	}
	var answer fit.Answer
	err := f.server.Ask(ctx, ask.Question{
		Path: []string{"debug", "fit"}, Query: options, Body: manifest,
	}, &answer)
	return answer, err
}
