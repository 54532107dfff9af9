package devices

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/deviceplugin/cordon"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/deviceplugin/failure"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/internal/route"
	"github.com/numalet/numalet/internal/strictyaml"
	"github.com/numalet/numalet/topology"
)

// Reasons of the node's events. The kubelet has none.
const (
	reasonCordoned   = "DeviceCordoned"
	reasonUncordoned = "DeviceUncordoned"
)

// Socket is the name of the unix socket, in the agent's root, where the node's administrator asks.
const Socket = "numalet.sock"

// maxQuestion bounds a question in bytes: an id and a reason, each written as \u escapes.
const maxQuestion = 64 << 10

// Config has the sources of the list of devices, and who hears of cordons.
type Config struct {
	Plugins *devicemanager.Plugins
	State   func() allocation.State
	Machine func() *topology.Machine
	// Drivers lists the drivers of resource claims; nil: there are none.
	Drivers func() []dra.Driver
	// Published lists the devices of the node's ResourceSlices; nil: the node is in no cluster.
	Published func() []claim.Device
	// Health says what a driver tells of the health of a device.
	Health func(claim.Device) (health v1.ResourceHealthStatus, why string)
	// Failures says what is known of unhealthy devices that containers hold; nil: nothing.
	Failures func() map[failure.Device]failure.Outlook
	// Tell records an event of the node.
	Tell func(eventType, reason, message string)
}

// Question names a device. Reason is for a cordon.
type Question struct {
	Resource string `json:"resource"`
	ID       string `json:"id"`
	Reason   string `json:"reason,omitempty"`
}

// Answer says what became of a question.
type Answer struct {
	// Changed: it was not so before.
	Changed bool `json:"changed"`
	// Device is how it is now.
	Device Row `json:"device"`
}

// ListRoute lists the devices; it changes nothing.
func ListRoute(c Config) route.Route {
	return route.JSON("/devices", func() any { return c.list() })
}

// DriversRoute lists the drivers of resource claims; it changes nothing.
func DriversRoute(c Config) route.Route {
	return route.JSON("/drivers", func() any {
		if c.Drivers == nil {
			return []dra.Driver{}
		}
		return c.Drivers()
	})
}

// Routes change which devices are given out: POST of a Question, answered with an Answer.
func Routes(c Config) []route.Route {
	return []route.Route{
		c.route("/devices/cordon", c.cordon), c.route("/devices/uncordon", c.uncordon),
	}
}

func (c Config) list() []Row {
	rows := List(c.Machine(), c.Plugins.Inventory(), c.State(), c.Plugins.Cordons())
	if c.Failures != nil {
		addFailures(rows, c.State(), c.Failures())
	}
	return append(rows, c.claimed()...)
}

// claimed lists the devices that resource claims hand out.
func (c Config) claimed() []Row {
	if c.Published == nil {
		return nil
	}
	return claimed{published: c.Published(), drivers: c.Drivers(), state: c.State(), health: c.Health}.rows()
}

// Supplies counts the devices that resource claims hand out, by driver.
func (c Config) Supplies() []explain.Supply { return Supplies(c.claimed(), c.Machine().NodeSet()) }

func (c Config) route(pattern string,
	act func(context.Context, Question) (changed bool, err error)) route.Route {
	return route.Route{Method: http.MethodPost, Pattern: pattern, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			q, err := read(http.MaxBytesReader(w, r.Body, maxQuestion))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			changed, err := act(r.Context(), q)
			switch {
			case errors.Is(err, cordon.ErrFull):
				http.Error(w, err.Error(), http.StatusInsufficientStorage)
			case err != nil:
				http.Error(w, err.Error(), http.StatusInternalServerError)
			default:
				route.WriteJSON(w, Answer{Changed: changed, Device: c.find(q)})
			}
		})}
}

// read is strict: a field that is not known might have named another device.
func read(body io.Reader) (q Question, err error) {
	raw, err := io.ReadAll(body)
	if err != nil {
		return q, fmt.Errorf("read the question: %w", err)
	}
	doc, err := strictyaml.Parse(raw)
	if err != nil {
		return q, fmt.Errorf("the question %w", err)
	}
	if q, err = strictyaml.Strict[Question](doc); err != nil {
		return q, fmt.Errorf("the question: %w", err)
	}
	return q, cordon.Cordon{Resource: q.Resource, ID: q.ID, Reason: q.Reason}.Check()
}

// cordon records the event even beside an error: the caller may have gone when the cordon was written.
func (c Config) cordon(ctx context.Context, q Question) (isNew bool, err error) {
	isNew, err = c.Plugins.Cordon(ctx, cordon.Cordon{
		Resource: q.Resource, ID: q.ID, Reason: oneline.Of(q.Reason), Since: time.Now().UTC(),
	})
	if !isNew {
		return false, err
	}
	message := fmt.Sprintf("Device %s of %s is not given to new containers", oneline.Of(q.ID),
		q.Resource)
	if row := c.find(q); len(row.HeldBy) > 0 {
		message += "; " + strings.Join(row.HeldBy, ", ") + " keeps it"
	}
	if q.Reason != "" {
		message += ": " + oneline.Of(q.Reason)
	}
	c.Tell(v1.EventTypeNormal, reasonCordoned, message)
	return true, err
}

func (c Config) uncordon(ctx context.Context, q Question) (was bool, err error) {
	was, err = c.Plugins.Uncordon(ctx, q.Resource, q.ID)
	if was {
		c.Tell(v1.EventTypeNormal, reasonUncordoned, fmt.Sprintf(
			"Device %s of %s is given to new containers again", oneline.Of(q.ID), q.Resource))
	}
	return was, err
}

// find is the device's row; Absent when there is none.
func (c Config) find(q Question) Row {
	rows := c.list()
	at := slices.IndexFunc(rows, func(r Row) bool {
		return r.Resource == q.Resource && r.ID == q.ID
	})
	if at < 0 {
		return Row{Resource: q.Resource, ID: q.ID, Health: HealthAbsent}
	}
	return rows[at]
}
