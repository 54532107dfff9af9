package playground

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/terminal"
)

// refresh is how often the views look.
const refresh = 200 * time.Millisecond

// print writes the table for people or for programs.
func (p *Playground) print(rows []placement.Row) error {
	if !p.opts.JSON {
		_, err := lipgloss.Fprintln(p.opts.Out, Table(rows, terminal.Width(p.opts.Out)))
		return err
	}
	raw, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.opts.Out, string(raw))
	return err
}

// lines prints a line whenever a container's row changes: for pipes and logs.
func (p *Playground) lines(ctx context.Context) error {
	fmt.Fprintf(p.opts.Out, "%s\n%s\n", p.headline(), p.hint())
	before, said := map[string]string{}, map[string]bool{}
	ticker := time.NewTicker(refresh)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now := map[string]string{}
		for _, r := range p.agent.Placements() {
			key := r.Namespace + "/" + r.Pod + " " + r.Container
			now[key] = strings.TrimSpace(strings.Join(append(Cells(r)[2:], r.Message), "  "))
			if now[key] != before[key] {
				p.note("%s  %s", key, now[key])
			}
		}
		for key := range before {
			if _, there := now[key]; !there {
				p.note("%s  gone", key)
			}
		}
		before = now
		for _, line := range lines(p.agent.Problems()) {
			if !said[line] {
				said[line] = true
				p.note("%s", line)
			}
		}
	}
}

// note prints a line with the time.
func (p *Playground) note(format string, args ...any) {
	fmt.Fprintf(p.opts.Out, "%s  %s\n", time.Now().Format("15:04:05.000"),
		fmt.Sprintf(format, args...))
}

// headline says what there is.
func (p *Playground) headline() string {
	m := p.agent.Machine()
	return fmt.Sprintf("numalet playground: %s, %d CPUs in %d NUMA nodes, runtime %s",
		cmp.Or(m.Name(), "this machine"), m.Online().Size(), m.NodeSet().Len(), p.opts.Runtime)
}

// hint says what can be done.
func (p *Playground) hint() string {
	return fmt.Sprintf("drop a pod manifest into %s to start it, delete it to stop it; log: %s\n"+
		"to know why: numalet explain POD --server %s", p.manifests, p.log.Name(), p.server)
}

// live shows the table in a terminal until the user quits.
func (p *Playground) live(ctx context.Context) error {
	program := tea.NewProgram(screen{p: p}, tea.WithContext(ctx), tea.WithOutput(p.opts.Out),
		tea.WithoutSignalHandler())
	_, err := program.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil // a signal ended it
	}
	return err
}

// screen is the terminal view.
type screen struct {
	p             *Playground
	width, height int
	rows          []placement.Row
	refused       []string
}

type tick struct{}

func (s screen) Init() tea.Cmd { return wait() }

func wait() tea.Cmd { return tea.Tick(refresh, func(time.Time) tea.Msg { return tick{} }) }

func (s screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "ctrl+c", "esc":
			return s, tea.Quit
		}
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case tick:
		s.rows, s.refused = s.p.agent.Placements(), lines(s.p.agent.Problems())
		return s, wait()
	}
	return s, nil
}

func (s screen) View() tea.View {
	view := tea.NewView(s.text())
	view.AltScreen = true
	return view
}

func (s screen) text() string {
	if s.width == 0 {
		return ""
	}
	faint := lipgloss.NewStyle().Faint(true)
	warn := lipgloss.NewStyle().Foreground(lipgloss.Red)
	wrap := lipgloss.NewStyle().Width(s.width)
	parts := []string{
		wrap.Bold(true).Render(s.p.headline()),
		wrap.Inherit(faint).Render(s.p.hint()),
		Table(s.rows, s.width),
	}
	for _, line := range s.refused {
		parts = append(parts, wrap.Inherit(warn).Render(line))
	}
	parts = append(parts, faint.Render(summary(s.rows)+"   q quits"))
	return clip(strings.Join(parts, "\n"), s.height)
}

// clip keeps what fits on the screen, with the last line, and says how much is missing.
func clip(text string, height int) string {
	all := strings.Split(text, "\n")
	if height <= 3 || len(all) <= height {
		return text
	}
	hidden := len(all) - height + 1
	kept := append(all[:height-2:height-2],
		fmt.Sprintf("... %d lines more: make the window taller", hidden), all[len(all)-1])
	return strings.Join(kept, "\n")
}

// summary counts pods by phase.
func summary(rows []placement.Row) string {
	seen, count := map[string]bool{}, map[v1.PodPhase]int{}
	for _, r := range rows {
		if key := r.Namespace + "/" + r.Pod; !seen[key] {
			seen[key] = true
			count[r.Phase]++
		}
	}
	var parts []string
	for _, phase := range []v1.PodPhase{v1.PodRunning, v1.PodPending, v1.PodSucceeded,
		v1.PodFailed} {
		if count[phase] > 0 {
			parts = append(parts,
				fmt.Sprintf("%d %s", count[phase], strings.ToLower(string(phase))))
		}
	}
	return fmt.Sprintf("%d pods: %s", len(seen), strings.Join(parts, ", "))
}
