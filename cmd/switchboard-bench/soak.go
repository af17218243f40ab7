package main

import "github.com/spf13/cobra"

func newSoakCommand() *cobra.Command   { return &cobra.Command{Use: "soak"} }
func newWorkerCommand() *cobra.Command { return &cobra.Command{Use: "worker"} }
