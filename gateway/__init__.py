"""The OpenAI front door: render, generate and derender behind one address. It knows no tokenizer and no grammar."""
