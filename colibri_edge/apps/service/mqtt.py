"""The one place that knows the MQTT library (paho-mqtt, extra `mqtt`).

Owns: the connection's settings. Refuses: to run without the library (ImportError that says so).
"""
from __future__ import annotations


def connect(config, spec: dict, **more):
    """A client that is connecting and reconnects by itself; the caller starts its loop."""
    try:
        import paho.mqtt.client as mqtt
    except ImportError:
        raise ImportError("MQTT needs the package 'paho-mqtt': pip install 'colibri-edge[mqtt]'") from None
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=spec["client"] or "", **more)
    if spec["user"]:
        password = config.beside(spec["password_file"]).read_text().strip() if spec["password_file"] else None
        client.username_pw_set(spec["user"], password)
    if spec["tls"]:
        client.tls_set()
    client.reconnect_delay_set(1, 60)
    client.connect_async(spec["host"], spec["port"], keepalive=30)
    return client
