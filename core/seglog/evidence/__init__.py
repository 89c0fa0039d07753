"""What is known of logs from their files and from what lies around them, before anything is judged or changed."""
