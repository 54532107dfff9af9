package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/cmd/internal/cli"
	"github.com/numalet/numalet/cmd/numalet-lab/playground"
)

// newPlaygroundCtlCommand returns "numalet playground ctl" with the orders that a playground takes.
func newPlaygroundCtlCommand() *cobra.Command {
	var dir string
	give := func(cmd *cobra.Command, route string, order any) error {
		client, err := playground.Find(dir)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
		defer cancel()
		return client.Order(ctx, route, order)
	}
	memory := &cobra.Command{
		Use:   "memory SHARE|usual",
		Short: "Have the node find so much of its memory in use, until the next such order",
		Example: "  numalet playground ctl memory 95%\n" +
			"  numalet playground ctl memory usual",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var order playground.MemoryOrder
			if args[0] != "usual" {
				if order.Used, err = playground.ParseShare(args[0]); err != nil {
					return err
				}
			}
			return give(cmd, "/memory", order)
		},
	}
	var order playground.ShutdownOrder
	shutdown := &cobra.Command{
		Use: "shutdown", Short: "Have the machine go down: the node ends its pods in order",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return give(cmd, "/shutdown", order) },
	}
	shutdown.Flags().BoolVar(&order.Cancel, "cancel", false, "it does not go down: the node takes pods again")
	cmd := cli.Group("ctl", "Give orders to a running playground", memory, shutdown)
	cmd.PersistentFlags().StringVar(&dir, "dir", "", "the playground's directory (that of the only one that runs)")
	return cmd
}
