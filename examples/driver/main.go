// Command widgets-driver is a driver of resource claims (DRA), widgets-driver.example.com. Its devices are the files of a
// folder; a file that begins with "broken" is an unhealthy device.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/numalet/numalet/deviceplugin/dradriver"
)

// driverName identifies the driver in ResourceSlices and claims.
const driverName = "widgets-driver.example.com"

func main() {
	flags := dradriver.AddFlags(pflag.CommandLine, "devices", driverName, "")
	folder := pflag.String("hardware", "/var/lib/widgets-driver", "folder whose files are the devices")
	specs := pflag.String("cdi-dir", "/var/run/cdi", "where container runtimes look for CDI files")
	pflag.Parse()
	cfg, err := flags.Config("widgets-driver", os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	cfg.CDI = *specs
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, cfg, *folder); err != nil {
		log.Fatal(err)
	}
}

// run serves the devices until ctx is done, and looks at them each second.
func run(ctx context.Context, cfg dradriver.Config, folder string) error {
	folder, err := filepath.Abs(folder) // runtimes take no relative path
	if err != nil {
		return err
	}
	cfg.Log = log.Printf
	cfg.Accept = noParameters
	has := hardware{folder}
	first, err := has.look()
	if err != nil {
		return err
	}
	driver, err := dradriver.New(cfg, first, has)
	if err != nil {
		return err
	}
	driver.Set(first, has)
	return driver.Run(ctx, func(ctx context.Context) error {
		look := time.NewTicker(time.Second)
		defer look.Stop()
		for {
			select {
			case <-look.C:
				now, err := has.look()
				if err != nil {
					log.Print(err) // the last list counts on
					continue
				}
				driver.Set(now, has)
			case <-ctx.Done():
				return nil
			}
		}
	})
}
