package mock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/internal/await"
)

// order makes something happen. An order to a GPU has the GPU's number as its first argument.
type order struct {
	args, does string
	ofGPU      bool
	do         func(r *Rig, i int, args []string) error
}

// orders holds all orders by name.
var orders = map[string]order{
	"unload": {does: "unload the driver", do: unload},
	"load":   {does: "load the driver", do: load},
	"hang":   {does: "the driver does not answer until resume", do: hang},
	"resume": {does: "the driver answers again", do: resume},
	"xid":    {"GPU CODE", "the driver reports an XID", true, xid},
	"lose":   {"GPU", "the GPU falls off the bus", true, lose},
	"remove": {"GPU", "the driver does not list the GPU any more", true, remove},
	"return": {"GPU", "a lost or removed GPU is back", true, reset},
	"reset":  {"GPU", "the GPU is reset: errors that a reset cures are gone", true, reset},
	"ecc":    {"GPU COUNT", "uncorrectable memory errors", true, ecc},
	"remap":  {"GPU pending|failed|done", "a row is to be replaced, or cannot be", true, remap},
	"links":  {"GPU COUNT", "so many NVLinks are down", true, links},
	"action": {"GPU none|reset|reboot", "what the driver wants done", true, action},
	"mig":    {"GPU on|off", "MIG mode; off removes what it was divided into", true, mig},
	"divide": {"GPU [PROFILE=COUNT ...]", "MIG devices in place of all before", true, divide},
}

// Orders returns help for people: a line for each order.
func Orders() string {
	var lines []string
	for name, o := range orders {
		lines = append(lines, fmt.Sprintf("  %-32s %s", strings.TrimSpace(name+" "+o.args), o.does))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Do obeys an order: "xid 3 79", "divide 0 1g.10gb=7". See Orders.
func (r *Rig) Do(text string) error {
	words := strings.Fields(text)
	if len(words) == 0 {
		return fmt.Errorf("the order is empty; there are\n%s", Orders())
	}
	o, known := orders[words[0]]
	if !known {
		return fmt.Errorf("there is no order %q; there are\n%s", words[0], Orders())
	}
	at, args := 0, words[1:]
	if o.ofGPU {
		var err error
		if at, args, err = r.which(args); err != nil {
			return fmt.Errorf("%s: %w", words[0], err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := o.do(r, at, args); err != nil {
		return fmt.Errorf("%s %s: %w", words[0], o.args, err)
	}
	await.Wake(r.wake)
	return nil
}

func (r *Rig) which(args []string) (at int, rest []string, err error) {
	if len(args) > 0 {
		at, err = strconv.Atoi(args[0])
	}
	if len(args) == 0 || err != nil || at < 0 || at >= len(r.machine.GPUs) {
		return 0, nil, fmt.Errorf("want a GPU, 0 to %d", len(r.machine.GPUs)-1)
	}
	return at, args[1:], nil
}

func unload(r *Rig, _ int, _ []string) error {
	r.loaded = false
	r.events = nil
	return nil
}

// load also resets all GPUs, as a driver does when it is loaded.
func load(r *Rig, _ int, _ []string) error {
	r.loaded = true
	r.loads++
	for i := range r.gpus {
		if !r.gpus[i].gone {
			_ = reset(r, i, nil)
		}
	}
	return nil
}

func hang(r *Rig, _ int, _ []string) error {
	if r.stuck == nil {
		r.stuck = make(chan struct{})
	}
	return nil
}

func resume(r *Rig, _ int, _ []string) error {
	if r.stuck != nil {
		close(r.stuck)
		r.stuck = nil
	}
	return nil
}

func xid(r *Rig, i int, args []string) error {
	code, err := number(args)
	if err != nil {
		return err
	}
	if len(r.events) >= maxEvents {
		return fmt.Errorf("%d events wait already", len(r.events))
	}
	r.events = append(r.events, gpu.Event{GPU: UUID(i), Instance: gpu.NoInstance,
		Compute: gpu.NoInstance, Kind: gpu.XIDEvent, XID: uint64(code)})
	return nil
}

func lose(r *Rig, i int, _ []string) error {
	r.gpus[i].reading = gpu.Reading{Lost: true}
	return nil
}

func remove(r *Rig, i int, _ []string) error {
	r.gpus[i].gone = true
	return nil
}

// reset cannot restore a GPU that has no memory rows left.
func reset(r *Rig, i int, _ []string) error {
	failed := r.gpus[i].reading.RemapFailed
	r.gpus[i].gone = false
	r.gpus[i].reading = r.healthy(i)
	r.gpus[i].reading.RemapFailed = failed
	return nil
}

func ecc(r *Rig, i int, args []string) error {
	count, err := number(args)
	r.gpus[i].reading.Uncorrected = uint64(count)
	return err
}

func remap(r *Rig, i int, args []string) error {
	word, err := oneOf(args, "pending", "failed", "done")
	if err == nil {
		r.gpus[i].reading.RemapPending = word == "pending"
		r.gpus[i].reading.RemapFailed = word == "failed"
	}
	return err
}

func links(r *Rig, i int, args []string) error {
	down, err := number(args)
	if has := r.linksOf(i); err == nil && down > has {
		return fmt.Errorf("the GPU has %d NVLinks", has)
	}
	if err == nil {
		r.gpus[i].reading.LinksDown, r.gpus[i].reading.LinksUp = down, r.linksOf(i)-down
	}
	return err
}

func action(r *Rig, i int, args []string) error {
	word, err := oneOf(args, "none", "reset", "reboot")
	if err == nil {
		r.gpus[i].reading.Action = map[string]gpu.Action{
			"none": gpu.NoAction, "reset": gpu.Reset, "reboot": gpu.Reboot,
		}[word]
	}
	return err
}

func mig(r *Rig, i int, args []string) error {
	word, err := oneOf(args, "on", "off")
	if err == nil && r.machine.Model.Slices == 0 {
		err = fmt.Errorf("%s has no MIG", r.machine.Model.Name)
	}
	if err == nil {
		r.gpus[i].mig, r.gpus[i].instances = word == "on", nil
	}
	return err
}

// number parses the only argument.
func number(args []string) (int, error) {
	if len(args) == 1 {
		if n, err := strconv.ParseUint(args[0], 10, 31); err == nil {
			return int(n), nil
		}
	}
	return 0, fmt.Errorf("want a number, not %q", strings.Join(args, " "))
}

func oneOf(args []string, words ...string) (string, error) {
	if len(args) == 1 && slices.Contains(words, args[0]) {
		return args[0], nil
	}
	return "", fmt.Errorf("want %s, not %q", strings.Join(words, " or "), strings.Join(args, " "))
}
