package artifactproxy

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/internal/ui"
)

// NewCommand returns the command `artifact-proxy`.
func NewCommand(streams ui.IO) *cobra.Command {
	var listen, logLevel string
	var servers []string
	cmd := &cobra.Command{
		Use:   "artifact-proxy",
		Short: "Pass only artifacts of sources on to kustomize-controller",
		Long: `Artifact-proxy is the HTTP proxy of kustomize-controller, in whose Pod it runs. It passes on
requests for an artifact of a source, by the digest or commit in its name, and refuses all
others: a tenant's kustomization.yaml could otherwise name the artifacts of other tenants.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var level slog.Level
			if err := level.UnmarshalText([]byte(logLevel)); err != nil {
				return fmt.Errorf("cannot log at level %q: it is none of debug, info, error", logLevel)
			}
			log := slog.New(slog.NewJSONHandler(streams.Err, &slog.HandlerOptions{Level: level}))
			proxy, err := New(servers, log)
			if err != nil {
				return err
			}
			return Run(cmd.Context(), listen, proxy, log)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&listen, "listen", DefaultListen, "address that serves requests")
	flags.StringArrayVar(&servers, "server", nil, "`host` that serves artifacts, at port 80 unless it has another one; repeatable")
	flags.StringVar(&logLevel, "log-level", "info", "debug, info or error")
	return cmd
}
