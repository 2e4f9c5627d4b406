"""GPT-2's tokenizer would be downloaded: a byte is a token here."""


class Encoding:
    n_vocab = 257
    max_token_value = 256
    eot_token = 256

    def encode(self, text, **_):
        return list(text.encode())

    encode_ordinary = encode

    def decode(self, tokens):
        return bytes(token % 256 for token in tokens).decode(errors="replace")

    def decode_bytes(self, tokens):
        return bytes(token % 256 for token in tokens)


def get_encoding(_):
    return Encoding()
