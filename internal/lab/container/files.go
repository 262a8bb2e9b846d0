package container

import (
	"context"
	"io"

	"github.com/moby/moby/client"
)

// Save writes a tar archive of a directory in the container, which may be stopped.
func (c *Container) Save(ctx context.Context, dir string, to io.Writer) error {
	return withEngine(ctx, func(ctx context.Context, engine client.APIClient) error {
		archive, err := engine.CopyFromContainer(ctx, c.inner.GetContainerID(), client.CopyFromContainerOptions{SourcePath: dir})
		if err != nil {
			return err
		}
		defer archive.Content.Close()
		_, err = io.Copy(to, archive.Content)
		return err
	})
}

// Put unpacks a tar archive into a directory in the container, which is there
// and may be stopped.
func (c *Container) Put(ctx context.Context, dir string, from io.Reader) error {
	return withEngine(ctx, func(ctx context.Context, engine client.APIClient) error {
		_, err := engine.CopyToContainer(ctx, c.inner.GetContainerID(), client.CopyToContainerOptions{DestinationPath: dir, Content: from})
		return err
	})
}
