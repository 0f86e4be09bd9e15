"""What a campaign is: typed models, YAML loading, and errors that name the file, the field and the reason."""
