"""What tests share: tiny models, a tokenizer, trials to look at, small data sets, a browser."""
