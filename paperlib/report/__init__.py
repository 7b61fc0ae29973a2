"""What notebooks show and leave behind: figure style, figure files, verdicts on claims."""
