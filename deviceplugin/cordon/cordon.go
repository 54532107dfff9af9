package cordon

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/numalet/numalet/internal/oneline"
)

// Bounds of what is remembered. An id may be as long as one in a plugin's list.
const (
	maxCordons     = 10_000
	maxIDBytes     = 4096
	maxReasonBytes = 1024
)

// Cordon is one device that new containers are not given.
type Cordon struct {
	Resource string `json:"resource"`
	ID       string `json:"id"`
	// Reason is for people, in one line; it may be empty.
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
}

// ErrFull is the error of Put when there are too many cordons, or too long ones.
var ErrFull = fmt.Errorf("at most %d devices can be cordoned, and %d MiB of them: uncordon those "+
	"that came back or are gone for good", maxCordons, maxFile>>20)

// Check says what is wrong with a requested cordon.
func (c Cordon) Check() error {
	wrong := validation.IsQualifiedName(c.Resource)
	switch {
	case len(wrong) > 0:
		return fmt.Errorf("resource %s: not the name of a resource, such as example.com/gpu: %s",
			oneline.Of(c.Resource), wrong[0])
	case !strings.Contains(c.Resource, "/"):
		return fmt.Errorf("resource %s: no resource of a device plugin, such as example.com/gpu; what resource claims "+
			"hand out, a DeviceTaintRule of the API server keeps from new ones", c.Resource)
	case c.ID == "":
		return errors.New("the device's id is empty: numalet device list has the ids")
	case len(c.ID) > maxIDBytes:
		return fmt.Errorf("the device's id has %d bytes; no id has more than %d", len(c.ID),
			maxIDBytes)
	case !utf8.ValidString(c.ID):
		return errors.New("the device's id is not UTF-8, and no plugin may list such a one")
	case len(c.Reason) > maxReasonBytes:
		return fmt.Errorf("the reason has %d bytes; at most %d are kept: say it shorter",
			len(c.Reason), maxReasonBytes)
	case !utf8.ValidString(c.Reason):
		return errors.New("the reason is not UTF-8")
	}
	return nil
}
