"""The page of `seglog report`: one HTML file with its own pictures, without network and without need of a script."""
