package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/terminal"

	"github.com/numalet/numalet/cmd/internal/ask"
	"github.com/numalet/numalet/cmd/internal/cli"
)

// nodeSummary is how an agent is, in a few numbers.
type nodeSummary struct {
	Node    string `json:"node"`
	Version string `json:"version"`
	// Unhealthy lists the health checks that fail.
	Unhealthy []string            `json:"unhealthy"`
	Pods      map[v1.PodPhase]int `json:"pods"`
	// ShortOf lists the signals of evictions whose threshold is met.
	ShortOf  []string         `json:"shortOf"`
	Problems int              `json:"problems"`
	Plugins  int              `json:"plugins"`
	Away     []string         `json:"away"` // plugins and drivers that are not connected
	Free     []explain.Supply `json:"free"`
}

// newStatusCommand returns "numalet status".
func newStatusCommand() *cobra.Command {
	var at asked
	var format string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say in a few lines how an agent is: health, pods, problems, what is free",
		Long: `Say in a few lines how a running agent is: its build, its health checks, its pods by
phase, what the node is short of, how many problems there are, which plugins are away,
and what is free.

The exit code is 0 when it is healthy, 1 when not, 2 when there is no answer.`,
		Example: "  numalet status\n  numalet status --node node1 -o json",
		Args:    cobra.NoArgs,
	}
	answers(cmd, "the agent is not healthy", func(cmd *cobra.Command) (bool, error) {
		s, err := at.summary(cmd.Context())
		if err != nil {
			return false, err
		}
		healthy, out := len(s.Unhealthy) == 0, cmd.OutOrStdout()
		if format == "json" {
			return healthy, cli.WriteJSON(out, s)
		}
		_, err = io.WriteString(out, terminal.Wrap(s.text(), cli.Width(out)))
		return healthy, err
	})
	cli.Choose(cmd.Flags(), &format, "output", "o", "how to print", "text", "json")
	at.Add(cmd.Flags())
	return cmd
}

// summary asks for all that a summary is made of.
func (a *asked) summary(ctx context.Context) (s nodeSummary, err error) {
	var short eviction.Explanation
	var build version.Info
	var problems []complaint.Problem
	var plugins []devicemanager.Peer
	var drivers []dra.Driver
	for path, answer := range map[string]any{
		"debug/shortage": &short, "version": &build, "problems": &problems, "plugins": &plugins,
		"drivers": &drivers, "free": &s.Free,
	} {
		if err := a.Get(ctx, answer, strings.Split(path, "/")...); err != nil {
			return s, err
		}
	}
	pods, err := a.pods(ctx)
	if err != nil {
		return s, err
	}
	if s.Unhealthy, err = a.unhealthy(ctx); err != nil {
		return s, err
	}
	s.Node, s.Version, s.Problems = short.Node, build.GitVersion, len(problems)
	s.ShortOf, s.Away, s.Pods = short.ShortOf(), []string{}, map[v1.PodPhase]int{}
	s.Plugins = len(plugins) + len(drivers)
	for _, pod := range pods {
		s.Pods[pod.Status.Phase]++
	}
	for _, p := range plugins {
		if p.Problem != "" {
			s.Away = append(s.Away, p.Resource)
		}
	}
	for _, d := range drivers {
		if d.Problem() != "" {
			s.Away = append(s.Away, d.Name)
		}
	}
	return s, nil
}

// unhealthy lists the health checks that fail.
func (a *asked) unhealthy(ctx context.Context) ([]string, error) {
	failed := []string{}
	body, err := a.Open(ctx, ask.Question{Path: []string{"healthz"}})
	if err == nil {
		return failed, body.Close()
	}
	refused, is := errors.AsType[*ask.Refusal](err)
	if !is {
		return nil, err
	}
	for _, check := range strings.Split(refused.Text, "[-]")[1:] {
		name, _, _ := strings.Cut(check, " ")
		failed = append(failed, name)
	}
	if len(failed) == 0 {
		return nil, err
	}
	return failed, nil
}

// text is the summary for people.
func (s nodeSummary) text() string {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", what, fmt.Sprintf(format, args...))
	}
	or := func(list []string, none string) string {
		if len(list) == 0 {
			return none
		}
		return strings.Join(list, ", ")
	}
	line("node", "%s, numalet %s", s.Node, s.Version)
	line("health", "%s", or(s.Unhealthy, "ok"))
	var phases []string
	all := 0
	for _, phase := range []v1.PodPhase{v1.PodRunning, v1.PodPending, v1.PodSucceeded, v1.PodFailed, v1.PodUnknown} {
		if n := s.Pods[phase]; n > 0 {
			phases = append(phases, fmt.Sprintf("%d %s", n, strings.ToLower(string(phase))))
			all += n
		}
	}
	line("pods", "%d%s", all, prefixed(": ", strings.Join(phases, ", ")))
	line("short of", "%s", or(s.ShortOf, "nothing"))
	if s.Problems == 0 {
		line("problems", "none")
	} else {
		line("problems", "%d, which numalet problems lists", s.Problems)
	}
	line("plugins", "%d%s", s.Plugins, prefixed(", not connected: ", strings.Join(s.Away, ", ")))
	for i, supply := range s.Free {
		what := "free"
		if i > 0 {
			what = ""
		}
		line(what, "%s", supply)
	}
	return b.String()
}

// prefixed returns the text with what comes before it, or nothing if there is no text.
func prefixed(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}
