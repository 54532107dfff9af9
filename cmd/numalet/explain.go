package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/agent/explain"
	"github.com/numalet/numalet/agent/terminal"
)

// askTimeout is longer than an agent takes over any question.
const askTimeout = 40 * time.Second

// newExplainCommand is "numalet explain POD".
func newExplainCommand() *cobra.Command {
	var namespace, server string
	cmd := &cobra.Command{
		Use:   "explain POD",
		Short: "Say why a pod was admitted, waits or was rejected",
		Long: `Ask a running agent about its last decision on a pod: what the pod asks for, what
was free on each NUMA node, where each resource could have been had, what is in
the way and what would fit. The pod of a manifest file has the node's name in its
name: app-NODE.`,
		Example: "  numalet explain app-node1\n  numalet explain app-node1 -n team-a",
		Args:    onePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			record, err := fetchRecord(cmd.Context(), server, namespace, args[0])
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			_, err = io.WriteString(out, terminal.Wrap(record.Text(), width(out)))
			return err
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "the pod's namespace")
	cmd.Flags().StringVar(&server, "server", "http://127.0.0.1:10255",
		"the agent's read-only port")
	return cmd
}

// onePod wants the name of a pod.
func onePod(_ *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return fmt.Errorf("%d pods are named: name one, such as numalet explain app-node1; the "+
		"agent's /pods lists them", len(args))
}

func fetchRecord(ctx context.Context, server, namespace, pod string) (explain.Record, error) {
	var record explain.Record
	address, err := url.JoinPath(server, "debug/admission", url.PathEscape(namespace),
		url.PathEscape(pod))
	if err != nil {
		return record, badServer(server, err)
	}
	req, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		return record, badServer(server, err)
	}
	err = askAgent(ctx, server, req, &record)
	return record, err
}

func badServer(server string, err error) error {
	return fmt.Errorf("--server %s: %w; it looks like http://127.0.0.1:10255", server, err)
}

// askAgent sends a request to the read-only port of the agent at server and decodes its answer.
func askAgent(ctx context.Context, server string, req *http.Request, answer any) error {
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" || req.URL.Host == "" {
		return badServer(server, errors.New("not the address of an agent"))
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := http.DefaultClient.Do(req.WithContext(ctx))
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("no agent answers at %s: set readOnlyPort (--read-only-port) of the "+
			"agent, which is off by default, or name its address with --server", server)
	}
	if err != nil {
		var failed *url.Error // names the whole request again
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return fmt.Errorf("ask the agent at %s: %w; name its read-only port with --server",
			server, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the agent at %s says: %s", server, strings.TrimSpace(string(raw)))
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil
}
