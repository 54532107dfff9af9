package dra

import (
	"context"
	"time"

	"github.com/numalet/numalet/deviceplugin/dradriver"
	"github.com/numalet/numalet/deviceplugin/eni"
)

// Config configures Run.
type Config struct {
	// Config is the plugin's. Claims is set by Run.
	eni.Config
	// Driver says where the driver serves. Driver, Node and Client have to be given.
	Driver dradriver.Config
}

// driver is a driver of resource claims.
type driver struct {
	*dradriver.Driver
	name   string
	plugin *eni.Plugin
}

// Run serves until ctx is done. It fails if a driver of the same name serves the node.
func Run(ctx context.Context, cfg Config) error {
	d := &driver{name: cfg.Driver.Driver}
	claims := cfg.Driver
	claims.CDI, claims.Accept, claims.Log = cfg.Places.CDI, refuse, cfg.Log.Printf
	var err error
	none := moment{driver: d}
	if d.Driver, err = dradriver.New(claims, none.list(), none); err != nil {
		return err
	}
	cfg.Claims = &eni.Claims{Follow: d.follow, Held: d.held}
	if d.plugin, err = eni.Open(ctx, cfg.Config); err != nil || d.plugin == nil {
		return err
	}
	defer d.plugin.Close()
	return d.Driver.Run(ctx, d.plugin.Run)
}

// follow takes what is offered, and has containers get interfaces from where they are now.
func (d *driver) follow(offers []eni.Offer) error {
	now := moment{driver: d, offers: offers, at: time.Now()}
	d.Set(now.list(), now)
	return d.Renew()
}

// held returns the interfaces that claims have.
func (d *driver) held() (map[string]bool, error) {
	all, err := d.Records()
	out := map[string]bool{}
	for _, h := range all.Held() {
		if h.ID != "" {
			out[h.ID] = true
		}
	}
	return out, err
}
