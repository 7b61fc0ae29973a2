"""*Deep ReLU Networks Preserve Expected Length*: closed forms, exact lengths, sampling."""
