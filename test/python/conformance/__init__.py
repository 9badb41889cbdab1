"""What every target must do: models with their inputs (`cases`), and ways to run them on a target (`runners`)."""
